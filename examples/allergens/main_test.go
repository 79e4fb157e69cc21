package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/belay-run/belay"
)

func menu(t *testing.T, recipes json.RawMessage, avoid ...string) string {
	t.Helper()
	var b bytes.Buffer
	if err := plan(context.Background(), &b, recipes, avoid, 3); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTheMenuHoldsNothingThatIsAvoided(t *testing.T) {
	want := `day 1: Gazpacho (20 minutes)
day 2: Dal tadka (45 minutes)
day 3: Chana masala (50 minutes)
buy: chickpeas, coriander, cucumber, cumin, garlic, ginger, olive oil, onion, red lentils, red pepper, sherry vinegar, sunflower oil, tomato
without Miso soup with tofu: gluten (traces)
without Mushroom risotto: milk (parmesan)
without Pad thai: egg (egg)
without Risi e bisi: milk (butter)
without Shakshuka: egg (egg)
without Spaghetti aglio e olio: gluten (wheat spaghetti)
without Tabbouleh: gluten (bulgur)
without Waldorf salad: egg (mayonnaise)
`
	if got := menu(t, recipes, "gluten", "milk", "egg"); got != want {
		t.Errorf("it prints\n%s\nand not\n%s", got, want)
	}
}

func TestNothingIsLeftToCook(t *testing.T) {
	const omelette = `[{"name":"Omelette","minutes":10,"ingredients":["egg","butter"]}]`
	want := "nothing is left to cook\nwithout Omelette: egg (egg)\n"
	if got := menu(t, json.RawMessage(omelette), "egg"); got != want {
		t.Errorf("it prints %q and not %q", got, want)
	}
}

func TestAMisspeltAllergenFailsTheRun(t *testing.T) {
	err := plan(context.Background(), new(bytes.Buffer), recipes, []string{"glutn"}, 3)
	if err == nil || !strings.Contains(err.Error(), `"glutn" is not an allergen`) {
		t.Errorf("a misspelt allergen gives %v", err)
	}
}

func TestAWishThatDoesNotFitIsRefused(t *testing.T) {
	err := plan(context.Background(), new(bytes.Buffer), recipes, []string{"milk"}, 0)
	if !errors.Is(err, belay.ErrInvalidInput) {
		t.Errorf("a menu for no days gives %v", err)
	}
}
