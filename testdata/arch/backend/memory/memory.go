package memory

import (
	"time"

	"github.com/belay-run/belay" // want: backend/memory may not import .
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite" // want: backend/memory may not import backend/sqlite
	"github.com/jackc/pgx/v5/pgxpool"           // want: backend/memory may not use the module of github.com/jackc/pgx/v5/pgxpool
	"github.com/other/module"                   // want: backend/memory may not use the module of github.com/other/module
)

var (
	_ = belay.New
	_ backend.Store
	_ = sqlite.Open
	_ pgxpool.Pool
	_ = module.New
)

func wait() {
	go time.Sleep(time.Since(time.Now()))
}
