package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestColourIsOnlyForTerminalsThatWantIt(t *testing.T) {
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		name    string
		to      *os.File
		env     map[string]string
		colours bool
	}{
		{"a terminal", device, nil, true},
		{"NO_COLOR", device, map[string]string{"NO_COLOR": "1"}, false},
		{"a dumb terminal", device, map[string]string{"TERM": "dumb"}, false},
		{"a file", file, nil, false},
	} {
		term := newTerminal(nil, nil, c.to, func(name string) string { return c.env[name] })
		if got := term.paint(red, "x") != "x"; got != c.colours {
			t.Errorf("%s: colour %v, want %v", c.name, got, c.colours)
		}
	}
}

func TestALongValueIsReadLineByLine(t *testing.T) {
	short := `{"question":"ship it?"}`
	if got := readable([]byte(short)); got != short {
		t.Errorf("a short value reads %q", got)
	}
	long := `{"notes":"` + strings.Repeat("x", readableLine) + `","question":"ship it?"}`
	want := "{\n    \"notes\": \"" + strings.Repeat("x", readableLine) + "\",\n    \"question\": \"ship it?\"\n  }"
	if got := readable([]byte(long)); got != want {
		t.Errorf("a long value reads\n%s\nwant\n%s", got, want)
	}
}
