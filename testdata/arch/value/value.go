package value

import (
	"context"     // want: value is pure and may not import context
	"crypto/rand" // want: value is pure and may not import crypto/rand
	"io/fs"       // want: value is pure and may not import io/fs
	"log/slog"
	"net"      // want: value is pure and may not import net
	"net/http" // want: value is pure and may not import net/http
	"net/url"
	"os"       // want: value is pure and may not import os
	. "slices" // want: value may not import into its own scope slices

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var (
	_ context.Context
	_ = rand.Reader
	_ fs.FS
	_ slog.Value
	_ net.Conn
	_ http.Handler
	_ url.URL
	_ = os.Stdout // want: value is a library and may not use os.Stdout
	_ = Contains[[]int]
	_ *jsonschema.Schema
)

func log() {
	slog.Info("read") // want: value is pure and may not use log/slog.Info
	os.Exit(1)        // want: value is a library and may not use os.Exit
}
