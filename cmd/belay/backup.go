package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newBackupCommand(t *terminal) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a verified copy of the store to a new file",
		Long: `Write a copy of the store, as it is at one instant, to a file that does not exist yet, while others go on
writing. The copy is read through before it gets its name: a file of that name is a good backup. Use it with
--db sqlite:FILE; there is nothing else to restoring.`,
		Example: `  belay backup /backups/belay-2026-01-31.db`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(fmt.Errorf("one file is needed, not %d", len(args)), "as in: belay backup copy.db")
			}
			return nil
		},
	}
	place := newLocation(t, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		s, err := place.existing(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		lite, err := s.inFile("back up")
		if err != nil {
			return err
		}
		path, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		if err := lite.Backup(cmd.Context(), path); err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if t.json {
			return t.result(struct {
				File  string `json:"file"`
				Bytes int64  `json:"bytes"`
			}{path, info.Size()})
		}
		_, err = fmt.Fprintf(t.out, "%s: %d bytes, verified\n", path, info.Size())
		return err
	}
	return exits(cmd, exitInfrastructure)
}
