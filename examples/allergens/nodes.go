package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/belay-run/belay/node"
)

// Recipe is a dish, what goes into it, and what traces of its ingredients may hold.
type Recipe struct {
	Name        string   `json:"name"`
	Minutes     int      `json:"minutes"`
	Ingredients []string `json:"ingredients"`
	Traces      []string `json:"traces,omitempty"`
}

// allergens says which allergen an ingredient holds.
var allergens = map[string]string{
	"bulgur": "gluten", "butter": "milk", "celery": "celery", "egg": "egg", "fish sauce": "fish",
	"mayonnaise": "egg", "miso": "soy", "parmesan": "milk", "peanuts": "peanuts", "prawns": "crustaceans",
	"sherry vinegar": "sulphites", "tofu": "soy", "vegetable stock": "celery", "walnuts": "nuts",
	"wheat spaghetti": "gluten", "white wine": "sulphites",
}

// holds names the first avoided allergen of a recipe, and why it is there.
func (r Recipe) holds(avoid []string, strict bool) (reason string, found bool) {
	for _, ingredient := range r.Ingredients {
		if a := allergens[ingredient]; a != "" && slices.Contains(avoid, a) {
			return fmt.Sprintf("%s (%s)", a, ingredient), true
		}
	}
	for _, a := range r.Traces {
		if strict && slices.Contains(avoid, a) {
			return a + " (traces)", true
		}
	}
	return "", false
}

// known lists the allergens that are looked for.
func known(recipes []Recipe) []string {
	names := slices.Collect(maps.Values(allergens))
	for _, r := range recipes {
		names = append(names, r.Traces...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// nodes are the node types of graph.yaml. The fields of their structs are state names.
func nodes() *node.Registry {
	return node.NewRegistry().Add(
		node.Configured("exclude_allergens", 1, exclude),
		node.Of("choose_quickest", 1, choose),
		node.Of("shopping_list", 1, shop),
		node.Of("write_card", 1, write),
	)
}

// Strictness is the config of exclude_allergens.
type Strictness struct {
	// Strict excludes recipes that may hold traces, too.
	Strict bool `json:"strict"`
}

// Wish is what is cooked from, and what must not be in it.
type Wish struct {
	Recipes []Recipe `json:"recipes"`
	Avoid   []string `json:"avoid"`
}

// Checked is what may be eaten, and why the rest may not.
type Checked struct {
	Safe     []Recipe          `json:"safe"`
	Excluded map[string]string `json:"excluded"`
}

func exclude(_ context.Context, how Strictness, in Wish) (Checked, error) {
	known := known(in.Recipes)
	for _, a := range in.Avoid {
		if !slices.Contains(known, a) {
			// A misspelt allergen would be avoided by no recipe.
			return Checked{}, node.Permanent(fmt.Errorf("%q is not an allergen that is looked for: use %s", a, strings.Join(known, ", ")))
		}
	}
	out := Checked{Safe: []Recipe{}, Excluded: map[string]string{}}
	for _, r := range in.Recipes {
		if reason, found := r.holds(in.Avoid, how.Strict); found {
			out.Excluded[r.Name] = reason
			continue
		}
		out.Safe = append(out.Safe, r)
	}
	return out, nil
}

// Choice is how many dishes are chosen, and from what.
type Choice struct {
	Safe []Recipe `json:"safe"`
	Days int      `json:"days"`
}

// Menu is what is cooked.
type Menu struct {
	Menu []Recipe `json:"menu"`
}

func choose(_ context.Context, in Choice) (Menu, error) {
	slices.SortStableFunc(in.Safe, func(a, b Recipe) int { return cmp.Compare(a.Minutes, b.Minutes) })
	return Menu{Menu: in.Safe[:min(in.Days, len(in.Safe))]}, nil
}

// Shopping is what must be in the house.
type Shopping struct {
	Shopping []string `json:"shopping"`
}

func shop(_ context.Context, in Menu) (Shopping, error) {
	var list []string
	for _, r := range in.Menu {
		list = append(list, r.Ingredients...)
	}
	slices.Sort(list)
	return Shopping{Shopping: slices.Compact(list)}, nil
}

// Card is the menu as a text.
type Card struct {
	Card string `json:"card"`
}

func write(_ context.Context, in Menu) (Card, error) {
	var b strings.Builder
	for i, r := range in.Menu {
		fmt.Fprintf(&b, "day %d: %s (%d minutes)\n", i+1, r.Name, r.Minutes)
	}
	return Card{Card: b.String()}, nil
}
