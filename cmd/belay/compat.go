package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
	"github.com/belay-run/belay/value"
)

func newGraphCompat(t *terminal, nodes *string) *cobra.Command {
	var opts belay.CompatOptions
	cmd := &cobra.Command{
		Use:   "compat",
		Short: "Say which unfinished runs a release can go on with, before it is rolled out",
		Long: `List every graph version that unfinished runs are of, and whether the built-in nodes can run it, or with
--nodes whether the binary of that manifest can, and if not why. Nothing is claimed or changed. It exits 1 when
there is one that cannot be run: a gate for a deploy. (A service asks the same with belay.Compat.)

A manifest lists the node types of a binary, and not its code: whether an older config that a type says it accepts
can be upgraded is not looked at.`,
		Example: `  belay graph compat --db postgres://belay@db/orders --nodes manifest.json`,
		Args:    noArguments,
	}
	place := newLocation(t, cmd)
	cmd.Flags().BoolVar(&opts.Documents, "documents", false, "also read the document of every unfinished run, which takes a while when there are many")
	cmd.Flags().DurationVar(&opts.MaxNodeTimeout, "max-node-timeout", 0, "the longest timeout of a node that the release admits; 0 for any")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		registry, err := registryOf(*nodes)
		if err != nil {
			return err
		}
		s, err := place.existing(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		all, err := belay.Compat(cmd.Context(), s.Store, registry, opts)
		if err != nil {
			return err
		}
		return t.compat(all)
	}
	return exits(cmd, exitFailed, exitInfrastructure)
}

// registryOf has the built-in nodes, or with a manifest stand-ins for what it lists, which bind to a
// graph and never run.
func registryOf(nodes string) (*node.Registry, error) {
	known, err := catalog(nodes)
	if err != nil {
		return nil, err
	}
	listed, ok := known.(foreign)
	if !ok {
		return std.Register(node.NewRegistry()), nil
	}
	registry := node.NewRegistry()
	type version struct {
		name   string
		number int
	}
	there := map[version]bool{}
	add := func(t graph.NodeType) {
		if v := (version{t.Name, t.Version}); !there[v] {
			there[v] = true
			t.Accepts = nil
			registry.Add(node.Raw(t, standIn))
		}
	}
	for _, t := range listed.manifest.Nodes {
		exact, _ := listed.NodeType(t.Name, t.Version) // with the checks of a built-in type
		add(exact)
	}
	for _, t := range listed.manifest.Nodes {
		for _, older := range t.Accepts {
			t.Version = older
			t.Config = value.Value(`true`) // how it is upgraded is the binary's to say
			add(t)
		}
	}
	return registry, registry.Err()
}

var errStandIn = errors.New("a stand-in does not run")

func standIn(node.Site) (node.Func, error) {
	return func(context.Context, *node.Call) (map[string]value.Value, error) { return nil, errStandIn }, nil
}

// compatibility is one graph version, as --json prints it.
type compatibility struct {
	Graph      graph.Ref `json:"graph"`
	Tenant     string    `json:"tenant,omitempty"`
	Compatible bool      `json:"compatible"`
	Running    int       `json:"running"`
	Waiting    int       `json:"waiting"`
	Poisoned   int       `json:"poisoned"`
	Unreadable int       `json:"unreadable,omitempty"`
	Oldest     time.Time `json:"oldest"`
	Reasons    []misfit  `json:"reasons,omitempty"`
}

// misfit is why a graph cannot be run.
type misfit struct {
	Node    string `json:"node,omitempty"`
	Use     string `json:"use,omitempty"`
	Version int    `json:"version,omitempty"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// compat prints what is compatible and what is not.
func (t *terminal) compat(all []belay.Compatibility) error {
	list, bad := make([]compatibility, 0, len(all)), 0
	for _, c := range all {
		tenant, _ := c.Owner.Tenant()
		one := compatibility{
			Graph: c.Graph, Tenant: tenant, Compatible: len(c.Reasons) == 0,
			Running: c.Running, Waiting: c.Waiting, Poisoned: c.Poisoned, Unreadable: c.Unreadable, Oldest: c.Oldest,
		}
		for _, r := range c.Reasons {
			one.Reasons = append(one.Reasons, misfit{r.Node, r.Use, r.Version, r.Code, r.Message})
		}
		if !one.Compatible {
			bad++
		}
		list = append(list, one)
	}
	var err error
	if t.json {
		err = t.result(struct {
			Compatible bool            `json:"compatible"`
			Graphs     []compatibility `json:"graphs"`
		}{bad == 0, list})
	} else {
		err = t.printCompat(list, bad)
	}
	if err == nil && bad > 0 {
		err = errReported{exitFailed}
	}
	return err
}

func (t *terminal) printCompat(list []compatibility, bad int) error {
	if len(list) > 0 {
		w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "GRAPH\tVERSION\tRUNNING\tWAITING\tPOISONED\tOLDEST\tTENANT\tCOMPATIBLE")
		for _, c := range list {
			verdict := "yes"
			if !c.Compatible {
				verdict = "no"
			}
			fmt.Fprintf(w, "%s\t%.12s\t%d\t%d\t%d\t%s\t%s\t%s\n", c.Graph.ID, c.Graph.Hash, c.Running, c.Waiting, c.Poisoned, clock(c.Oldest), c.Tenant, verdict)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for _, c := range list {
		if c.Compatible {
			continue
		}
		fmt.Fprintf(t.out, "\n%s@%s cannot be run:\n", c.Graph.ID, c.Graph.Hash)
		for _, r := range c.Reasons {
			where := ""
			if r.Node != "" {
				where = fmt.Sprintf("node %s (%s@%d): ", r.Node, r.Use, r.Version)
			}
			fmt.Fprintf(t.out, "  %s%s: %s\n", where, r.Code, r.Message)
		}
		if c.Unreadable > 0 {
			fmt.Fprintf(t.out, "  %s cannot be read\n", count(c.Unreadable, "document"))
		}
	}
	if len(list) > 0 {
		fmt.Fprintln(t.out)
	}
	verdict := count(len(list), "graph version") + " with unfinished runs"
	switch {
	case bad > 0:
		verdict += fmt.Sprintf(", %d of them cannot be run", bad)
	case len(list) > 0:
		verdict += ", all can be run"
	}
	_, err := fmt.Fprintln(t.out, verdict)
	return err
}
