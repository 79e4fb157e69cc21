//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

var client = &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// call is one request.
type call struct{ method, path, tenant, key, body string }

// at sends it to one replica.
func (c call) at(url string) (status int, header http.Header, body []byte, err error) {
	r, err := http.NewRequest(c.method, url+c.path, bytes.NewBufferString(c.body))
	if err != nil {
		return 0, nil, nil, err
	}
	r.Header.Set("X-Tenant", c.tenant)
	if c.key != "" {
		r.Header.Set("Idempotency-Key", c.key)
	}
	out, err := client.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer out.Body.Close()
	body, err = io.ReadAll(out.Body)
	return out.StatusCode, out.Header, body, err
}

func get(url string) (status int, body []byte, err error) {
	status, _, body, err = call{method: "GET", tenant: "anyone"}.at(url)
	return status, body, err
}

// fleet is replicas behind something that picks any of them.
type fleet []*replica

// send sends a request until it is answered, to any replica each time. uncertain: an earlier sending may
// have had its effect.
func (f fleet) send(c call) (status int, body []byte, uncertain bool, err error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(30 * time.Millisecond) {
		status, _, body, err = c.at(f[rand.IntN(len(f))].address())
		if err == nil && status != http.StatusServiceUnavailable {
			return status, body, uncertain, nil
		}
		if time.Now().After(deadline) {
			return status, body, uncertain, fmt.Errorf("%s %s is not answered: %d, %w", c.method, c.path, status, err)
		}
		uncertain = true
	}
}

// until reads an order until it is as wanted.
func (f fleet) until(tenant, id string, wanted func(orderView) bool) (v orderView, err error) {
	for deadline := time.Now().Add(patience); ; {
		status, body, _, err := f.send(call{method: "GET", path: "/orders/" + id + "?wait=5s", tenant: tenant})
		if err != nil {
			return v, err
		}
		v = orderView{}
		if err := json.Unmarshal(body, &v); err != nil || status != http.StatusOK {
			return v, fmt.Errorf("order %s: %d %s %w", id, status, body, err)
		}
		if wanted(v) {
			return v, nil
		}
		if time.Now().After(deadline) {
			return v, fmt.Errorf("order %s stays as it is: %s", id, body)
		}
	}
}

func asks(v orderView) bool     { return v.WaitsFor != nil || v.Status.Terminal() }
func finished(v orderView) bool { return v.Status.Terminal() }

// fate is what a customer does with an order.
type fate int

const (
	small fate = iota // it needs no approval
	granted
	refused
	withdrawn // while it waits for the approval
	hasty     // at once
)

// fates are dealt out in turn.
var fates = []fate{small, granted, small, refused, hasty, granted, small, withdrawn, hasty, granted}

// The ends that an order can come to, by what was done for it.
var (
	shipped = []string{"charge", "reserve", "ship"}
	undone  = []string{"charge", "refund", "release", "reserve"}
)

// customer is one order, its customer, and who approves it.
type customer struct {
	n    int
	fate fate

	id string
	// ends are the statuses that the order may have at its end.
	status string
}

func (c *customer) tenant() string { return fmt.Sprint("tenant-", c.n%3) }

// live plays one order through.
func (c *customer) live(f fleet) error {
	amount := 1000
	if c.fate != small && (c.fate != hasty || c.n%20 < 10) {
		amount = 50_000
	}
	place := call{"POST", "/orders", c.tenant(), fmt.Sprint("key-", c.n), fmt.Sprintf(`{"item": "thing %d", "amount": %d}`, c.n, amount)}
	for range 1 + c.n%2 { // every other customer orders twice
		status, body, _, err := f.send(place)
		var v orderView
		switch {
		case err != nil:
			return err
		case status != http.StatusCreated && status != http.StatusOK || json.Unmarshal(body, &v) != nil:
			return fmt.Errorf("POST /orders: %d %s", status, body)
		case c.id != "" && (v.ID != c.id || status != http.StatusOK):
			return fmt.Errorf("order %s was started again: %d %s", c.id, status, body)
		}
		c.id = v.ID
	}
	if c.fate != small && c.fate != hasty {
		if v, err := f.until(c.tenant(), c.id, asks); err != nil || v.WaitsFor == nil {
			return fmt.Errorf("order %s does not ask: %s %w", c.id, v.Status, err)
		}
	}
	switch c.fate {
	case granted, refused:
		approve := call{"POST", "/orders/" + c.id + "/approve", c.tenant(), "", fmt.Sprintf(`{"approve": %t}`, c.fate == granted)}
		status, body, uncertain, err := f.send(approve)
		if err != nil || status != http.StatusOK && (!uncertain || status != http.StatusConflict) {
			return fmt.Errorf("approve order %s: %d %s %w", c.id, status, body, err)
		}
		if status, body, _, err = f.send(approve); err != nil || status != http.StatusConflict {
			return fmt.Errorf("approve order %s again: %d %s %w", c.id, status, body, err)
		}
	case withdrawn, hasty:
		status, body, _, err := f.send(call{method: "POST", path: "/orders/" + c.id + "/cancel", tenant: c.tenant()})
		switch {
		case err == nil && status == http.StatusOK:
			c.status = "cancelled"
		case err == nil && status == http.StatusConflict && amount < 10_000:
			c.status = "done" // shipped already
		default:
			return fmt.Errorf("cancel order %s: %d %s %w", c.id, status, body, err)
		}
	}
	if c.status == "" {
		c.status = "done"
	}
	v, err := f.until(c.tenant(), c.id, finished)
	if err == nil && string(v.Status) != c.status {
		err = fmt.Errorf("order %s is %s, not %s", c.id, v.Status, c.status)
	}
	return err
}

// settled reads the order when everything about it has come to its end, and says what is wrong with it.
func (c *customer) settled(f fleet) error {
	v, err := f.until(c.tenant(), c.id, finished)
	if err != nil {
		return err
	}
	var did []string
	for _, e := range v.Done {
		did = append(did, e.Kind)
	}
	slices.Sort(did)
	right := false
	switch {
	case c.status == "cancelled":
		// What was done is undone, be it nothing.
		right = len(did) == 0 || slices.Equal(did, []string{"release", "reserve"}) || slices.Equal(did, undone)
	case c.fate == refused:
		right = slices.Equal(did, undone)
	default:
		right = slices.Equal(did, shipped)
	}
	if !right || string(v.Status) != c.status || v.Failure != nil || v.Stuck != "" {
		return fmt.Errorf("order %s of fate %d is %s %s, and was done for it: %v", c.id, c.fate, v.Status, v.Stuck, did)
	}
	return nil
}
