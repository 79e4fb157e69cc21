package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belay-run/belay"
)

// schema is the service's own tables; the engine's are beside them in the same database. Both databases
// understand these statements, as they do all in this file.
const schema = `
create table if not exists orders (
	id         text primary key,          -- the run's id
	tenant     text not null,
	request    text not null,             -- the digest of what was asked for
	item       text not null,
	amount     bigint not null,
	created_at text not null,
	withdrawn  integer not null default 0
);
create table if not exists effects (      -- the ledger: what was done in the world
	key      text primary key,            -- the idempotency key
	order_id text not null references orders (id),
	kind     text not null,
	calls    integer not null default 1   -- how often it was asked for
);
create index if not exists effects_by_order on effects (order_id);
`

var (
	// errNoOrder: there is none, or it is another tenant's.
	errNoOrder = errors.New("there is no such order")
	// errWithdrawn: the order was withdrawn, and nothing more is done for it.
	errWithdrawn = errors.New("the order is withdrawn")
	// errShipped: it is too late to withdraw the order.
	errShipped = errors.New("the order has been shipped: it cannot be withdrawn any more")
)

// order is a row of orders.
type order struct {
	id, request, item string
	amount            int64
	createdAt         string
	withdrawn         bool
	// effects are those of the ledger, where they were asked for.
	effects []effect
}

// effect is a row of effects.
type effect struct {
	key, order, kind string
	calls            int
	// undoes is the kind of effect that this one takes back; empty: none. It is not stored.
	undoes string
}

// insertOrder stores the row of an order whose run was started in the same transaction.
func insertOrder(ctx context.Context, tx transaction, tenant string, r *belay.Run, request string) error {
	o := order{createdAt: r.StartedAt.Format(time.RFC3339Nano)}
	if err := errors.Join(json.Unmarshal(r.Value("item"), &o.item), json.Unmarshal(r.Value("amount"), &o.amount)); err != nil {
		return err
	}
	_, err := tx.exec(ctx, "insert into orders (id, tenant, request, item, amount, created_at) values ($1, $2, $3, $4, $5, $6)",
		r.ID, tenant, request, o.item, o.amount, o.createdAt)
	return err
}

// readOrder reads one order of a tenant. errNoOrder.
func readOrder(ctx context.Context, q querier, tenant, id string) (order, error) {
	found, err := readOrders(ctx, q, tenant, []string{id})
	if err != nil {
		return order{}, err
	}
	o, ok := found[id]
	if !ok {
		return order{}, errNoOrder
	}
	return o, nil
}

// readOrders reads orders of a tenant, by their ids.
func readOrders(ctx context.Context, q querier, tenant string, ids []string) (map[string]order, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	args := []any{tenant}
	var in strings.Builder
	for i, id := range ids {
		args = append(args, id)
		fmt.Fprintf(&in, ", $%d", i+2)
	}
	found := make(map[string]order, len(ids))
	err := q.query(ctx, "select id, request, item, amount, created_at, withdrawn from orders where tenant = $1 and id in ("+in.String()[2:]+")", args,
		func(scan func(...any) error) error {
			var o order
			var withdrawn int
			err := scan(&o.id, &o.request, &o.item, &o.amount, &o.createdAt, &withdrawn)
			o.withdrawn = withdrawn != 0
			found[o.id] = o
			return err
		})
	return found, err
}

// readEffects reads what was done for an order.
func readEffects(ctx context.Context, q querier, id string) (found []effect, err error) {
	err = q.query(ctx, "select key, kind, calls from effects where order_id = $1 order by key", []any{id}, func(scan func(...any) error) error {
		e := effect{order: id}
		err := scan(&e.key, &e.kind, &e.calls)
		found = append(found, e)
		return err
	})
	return found, err
}

// lockOrder locks an order's row until the transaction ends, so that effects and a withdrawal come one
// after the other, and says whether the order is withdrawn. errNoOrder.
func lockOrder(ctx context.Context, tx transaction, id string) (tenant string, withdrawn bool, err error) {
	n := -1
	err = tx.query(ctx, "select tenant, withdrawn from orders where id = $1"+tx.forUpdate(), []any{id}, func(scan func(...any) error) error {
		return scan(&tenant, &n)
	})
	if err == nil && n < 0 {
		err = errNoOrder
	}
	return tenant, n > 0, err
}

// markWithdrawn makes sure that nothing more is done for an order; first is false when that is so
// already. errNoOrder; errShipped.
func markWithdrawn(ctx context.Context, tx transaction, tenant, id string) (first bool, err error) {
	owner, withdrawn, err := lockOrder(ctx, tx, id)
	switch {
	case err != nil:
		return false, err
	case owner != tenant:
		return false, errNoOrder
	case withdrawn:
		return false, nil
	}
	if done, err := kinds(ctx, tx, id); err != nil {
		return false, err
	} else if done["ship"] != "" {
		return false, errShipped
	}
	_, err = tx.exec(ctx, "update orders set withdrawn = 1 where id = $1", id)
	return err == nil, err
}

// recordEffect does something in the world: here, it writes it into the ledger, and the same key
// again does nothing but count. errWithdrawn when it is something new for an order that is
// withdrawn. What undoes an effect that never was, or is undone already, does nothing.
func recordEffect(ctx context.Context, tx transaction, e effect) error {
	_, withdrawn, err := lockOrder(ctx, tx, e.order)
	if err != nil {
		return err
	}
	done, err := kinds(ctx, tx, e.order)
	switch {
	case err != nil:
		return err
	case e.undoes == "" && withdrawn:
		return errWithdrawn
	case e.undoes != "" && done[e.undoes] == "", e.undoes != "" && done[e.kind] != "" && done[e.kind] != e.key:
		return nil
	}
	_, err = tx.exec(ctx, `insert into effects (key, order_id, kind) values ($1, $2, $3)
		on conflict (key) do update set calls = effects.calls + 1`, e.key, e.order, e.kind)
	return err
}

// kinds is what was done for an order: the key of each kind of effect.
func kinds(ctx context.Context, q querier, id string) (map[string]string, error) {
	found, err := readEffects(ctx, q, id)
	done := make(map[string]string, len(found))
	for _, e := range found {
		done[e.kind] = e.key
	}
	return done, err
}
