package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

func newRunsMigrate(d *desk) *cobra.Command {
	var to, mapping string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "migrate RUN --to GRAPH@HASH",
		Short: "Move a run to another version of its graph",
		Long: `Move a run to another version of its graph, which has been published: it goes on where it stands, with all it
holds. --to GRAPH is the latest version. What the version has under another name is mapped by a file, and what the run
is to lose is named in it:

  {"nodes": {"charge": "bill"}, "fields": {"sum": "total"}, "edges": {"e1": "pay"},
   "drop": {"nodes": ["check"], "fields": ["note"], "edges": ["e2"]}}

A run that would lose what it still needs is refused, with every reason, and left as it is. A node that is running
somewhere is ended there, and planned again under the version. A run that has the version already is success.`,
		Example: `  belay runs migrate 01KE --to order@8b3406 --dry-run
  belay runs migrate 01KE --to order --map renames.json`,
		Args: oneRun(),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := parseVersion(to)
			if err != nil {
				return err
			}
			opts := belay.MigrateOptions{DryRun: dryRun}
			if opts.Mapping, err = readMapping(mapping); err != nil {
				return err
			}
			return d.useRun(cmd.Context(), args[0], func(s *store, info backend.Info) error {
				engine, err := newEngine(s, nil)
				if err != nil {
					return err
				}
				client := clientOf(engine, info.Owner)
				if ref.Hash, err = wholeHash(cmd, s, info.Owner, ref); err != nil {
					return err
				}
				r, err := client.Migrate(cmd.Context(), info.Document.ID, ref, opts)
				if err != nil {
					return d.unmigrated(info.Document.ID, err)
				}
				return d.migrated(info.Document, r, dryRun)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the version: GRAPH@HASH (the beginning of the hash will do), or GRAPH for the latest")
	cmd.Flags().StringVar(&mapping, "map", "", "a JSON file that says what becomes of renamed and dropped parts")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say whether it would be done")
	return exits(cmd, exitFailed, exitInfrastructure)
}

func parseVersion(to string) (ref graph.Ref, err error) {
	ref.ID, ref.Hash, _ = strings.Cut(to, "@")
	if ref.ID == "" {
		return ref, usage(errors.New("--to names no version"), "as in: --to order@8b3406, or --to order for the latest")
	}
	return ref, nil
}

// wholeHash is the hash of the owner's version whose hash begins as the given one; empty stays empty.
func wholeHash(cmd *cobra.Command, s *store, owner backend.Owner, ref graph.Ref) (string, error) {
	if ref.Hash == "" {
		return "", nil
	}
	var found []string
	for q := (backend.GraphQuery{Limit: backend.MaxLimit}); ; {
		page, err := s.GraphVersions(cmd.Context(), owner, ref.ID, q)
		if err != nil {
			return "", err
		}
		for _, v := range page.Versions {
			if strings.HasPrefix(v.Ref.Hash, ref.Hash) {
				found = append(found, v.Ref.Hash)
			}
		}
		if !page.HasMore {
			break
		}
		q.Before = page.Next
	}
	switch len(found) {
	case 0:
		return "", usage(fmt.Errorf("graph %s has no version %s", ref.ID, ref.Hash), "publish it for the run's owner first")
	case 1:
		return found[0], nil
	}
	return "", usage(fmt.Errorf("%s begins the hashes of %s of graph %s", ref.Hash, count(len(found), "version"), ref.ID), "give more of the hash")
}

func readMapping(name string) (m run.Mapping, err error) {
	if name == "" {
		return m, nil
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return m, usage(fmt.Errorf("--map cannot be read: %w", err), "give the name of a JSON file")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return m, usage(fmt.Errorf("--map %s: %w", name, err), `it holds one object with "nodes", "fields", "edges" and "drop"`)
	}
	if dec.More() {
		return m, usage(fmt.Errorf("--map %s: something follows the object", name), "keep one object in it")
	}
	return m, nil
}

// migrated tells what a migration did, or would do.
func (d *desk) migrated(from *run.Document, r *belay.Run, dryRun bool) error {
	t := d.terminal
	changed := from.Graph != r.Graph
	if t.json {
		return t.result(struct {
			Run     string     `json:"run"`
			Status  run.Status `json:"status"`
			From    graph.Ref  `json:"from"`
			To      graph.Ref  `json:"to"`
			Changed bool       `json:"changed"`
			DryRun  bool       `json:"dry_run"`
		}{r.ID, r.Status, from.Graph, r.Graph, changed, dryRun})
	}
	verb := "is migrated"
	switch {
	case !changed:
		t.say("run %s has the version %s@%s already", r.ID, r.Graph.ID, r.Graph.Hash)
		return nil
	case dryRun:
		verb = "would be migrated"
	}
	t.say("run %s %s from %s@%s to %s@%s", r.ID, verb, from.Graph.ID, from.Graph.Hash, r.Graph.ID, r.Graph.Hash)
	return nil
}

// unmigrated tells why a run cannot be migrated, a reason a line.
func (d *desk) unmigrated(id string, err error) error {
	var refused *belay.MigrationError
	if !errors.As(err, &refused) {
		return d.refused(id, err)
	}
	type reason struct {
		Kind   run.MigrationKind `json:"kind"`
		Path   string            `json:"path,omitempty"`
		Reason string            `json:"reason"`
	}
	reasons := make([]reason, len(refused.Problems))
	for i, p := range refused.Problems {
		reasons[i] = reason(p)
		d.terminal.say("%s: %s %s", p.Kind, p.Path, p.Reason)
	}
	if d.terminal.json {
		if err := d.terminal.result(struct {
			Run     string    `json:"run"`
			To      graph.Ref `json:"to"`
			Reasons []reason  `json:"reasons"`
		}{id, refused.To, reasons}); err != nil {
			return err
		}
		return errReported{exitFailed}
	}
	return &exitError{exitFailed, fmt.Errorf("run %s stays at its version: %s", id, count(len(reasons), "reason")), "see: " + d.place.again("runs", "show", id)}
}
