package postgres_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/node"
)

// The host's own rows and the start of a run, in one transaction of the host's: both, or
// neither.
func ExampleStore_WithTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	engine, err := belay.New(belay.Config{Backend: store, Nodes: node.NewRegistry()})
	if err != nil {
		log.Fatal(err)
	}
	doc, err := belay.ReadGraph("order.yaml")
	if err != nil {
		log.Fatal(err)
	}
	ref, err := engine.Publish(ctx, doc)
	if err != nil {
		log.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into orders (id) values (42)"); err != nil {
			return err
		}
		_, err := engine.StartIn(ctx, store.WithTx(tx), ref, 42, belay.StartOptions{})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
