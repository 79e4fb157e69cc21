package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestAPathNamesADatabaseToo(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	s := &script{t: t, data: dir}
	for _, db := range []string{filepath.Join(dir, "none.db"), "none.db", "sqlite:none.db"} {
		if got := s.run("runs list --db "+db, "", ""); !strings.Contains(got, "no runs are kept in") || !strings.Contains(got, "exit 2") {
			t.Errorf("--db %s:\n%s", db, got)
		}
	}
	if got := s.run("runs list --db memroy:", "", ""); !strings.Contains(got, `no backend is known for "memroy"`) {
		t.Errorf("a misspelt backend:\n%s", got)
	}
}
