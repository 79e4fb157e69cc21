package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// newTestServer serves a new file, in this process.
func newTestServer(t *testing.T) string {
	t.Helper()
	stopping, stop := context.WithCancel(context.Background())
	db, err := openDatabase(stopping, "sqlite:"+filepath.Join(t.TempDir(), "data", "orders.db"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := newService(stopping, db, config{ttl: time.Minute, poll: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.engine.Run(context.WithoutCancel(stopping)) }()
	server := httptest.NewServer(s.handler())
	t.Cleanup(func() {
		stop()
		server.Close()
		for _, err := range []error{s.engine.Shutdown(context.Background()), <-ended, db.close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return server.URL
}

// exchange sends one request, and reads the JSON that answers it.
func exchange(t *testing.T, method, url, body string, headers ...string) (*http.Response, map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, text, _ := strings.Cut(header, ": ")
		r.Header.Set(name, text)
	}
	out, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	var raw bytes.Buffer
	if _, err := raw.ReadFrom(out.Body); err != nil {
		t.Fatal(err)
	}
	var answer map[string]any
	if strings.Contains(out.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(raw.Bytes(), &answer); err != nil {
			t.Fatalf("%v: %s", err, raw.Bytes())
		}
	}
	return out, answer
}

// TestREADMECommandsAnswerAsItSays sends what the curl lines of README.md send.
func TestREADMECommandsAnswerAsItSays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^curl (.*\S) +# (\d{3})`).FindAllSubmatch(text, -1)
	if len(lines) < 10 || len(lines) != bytes.Count(text, []byte("curl ")) {
		t.Fatalf("README.md has %d lines with curl that say what they answer", len(lines))
	}
	url := newTestServer(t)
	if out, _ := exchange(t, "GET", url+"/healthz", ""); out.StatusCode != http.StatusOK {
		t.Errorf("/healthz answers %d", out.StatusCode)
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if out, _ := exchange(t, "GET", url+"/readyz", ""); out.StatusCode == http.StatusOK {
			break
		}
	}
	id := ""
	for _, line := range lines {
		method, target, body, headers := parseCurl(t, string(line[1]))
		target = strings.ReplaceAll(strings.Replace(target, "localhost:8080", url, 1), "ID", id)
		out, answer := exchange(t, method, target, body, headers...)
		if want, _ := strconv.Atoi(string(line[2])); out.StatusCode != want {
			t.Errorf("curl %s\nanswers %d %v", line[1], out.StatusCode, answer)
		}
		if placed, ok := strings.CutPrefix(out.Header.Get("Location"), "/orders/"); ok {
			id = placed
		}
	}
}

// parseCurl reads the options of a line: -X, -H and -d, with '...' around what has spaces.
func parseCurl(t *testing.T, line string) (method, url, body string, headers []string) {
	t.Helper()
	words := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1)
	for i := range words {
		words[i] = strings.Trim(words[i], "'")
	}
	method = http.MethodGet
	for i := 0; i < len(words); i++ {
		switch words[i] {
		case "-X":
			i++
			method = words[i]
		case "-H":
			i++
			headers = append(headers, words[i])
		case "-d":
			i++
			method, body = http.MethodPost, words[i]
		default:
			url = words[i]
		}
	}
	return method, url, body, headers
}

// TestBadRequestsSayWhatIsWrong: each has the status that is its own, and names what is wrong.
func TestBadRequestsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	url := newTestServer(t)
	const acme = "X-Tenant: acme"
	out, piano := exchange(t, "POST", url+"/orders", `{"item": "piano", "amount": 900000}`, acme, "Idempotency-Key: piano")
	if out.StatusCode != http.StatusCreated {
		t.Fatalf("an order answers %d %v", out.StatusCode, piano)
	}
	id := piano["id"].(string)
	exchange(t, "GET", url+"/orders/"+id+"?wait=5s", "", acme) // until it asks
	for _, test := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		paths                    []string
	}{
		{"everything that is wrong with an order", "POST", "/orders", `{"amount": -1, "colour": "red"}`, []string{acme, "Idempotency-Key: a"}, 400, []string{"/amount", "/colour", "/item"}},
		{"a text that is no JSON", "POST", "/orders", `{"item": `, []string{acme, "Idempotency-Key: a"}, 400, []string{"/item"}},
		{"no body", "POST", "/orders", "", []string{acme, "Idempotency-Key: a"}, 400, []string{""}},
		{"no key", "POST", "/orders", `{"item": "lamp", "amount": 1}`, []string{acme}, 400, []string{"Idempotency-Key"}},
		{"no tenant", "GET", "/orders", "", nil, 400, []string{"X-Tenant"}},
		{"too much", "POST", "/orders", `{"item": "` + strings.Repeat("x", maxBody) + `"}`, []string{acme, "Idempotency-Key: a"}, 413, nil},
		{"a key that was used for something else", "POST", "/orders", `{"item": "lamp", "amount": 1}`, []string{acme, "Idempotency-Key: piano"}, 422, nil},
		{"the same in another notation", "POST", "/orders", `{"amount":900000,"item":"\u0070iano"}`, []string{acme, "Idempotency-Key: piano"}, 200, nil},
		{"the same key of another tenant", "POST", "/orders", `{"item": "lamp", "amount": 1}`, []string{"X-Tenant: other", "Idempotency-Key: piano"}, 201, nil},
		{"an unknown order", "GET", "/orders/nobody", "", []string{acme}, 404, nil},
		{"another tenant's order", "GET", "/orders/" + id, "", []string{"X-Tenant: other"}, 404, nil},
		{"another tenant's order, awaited", "GET", "/orders/" + id + "?wait=1s", "", []string{"X-Tenant: other"}, 404, nil},
		{"to approve another tenant's order", "POST", "/orders/" + id + "/approve", `{"approve": true}`, []string{"X-Tenant: other"}, 404, nil},
		{"to cancel another tenant's order", "POST", "/orders/" + id + "/cancel", "", []string{"X-Tenant: other"}, 404, nil},
		{"an answer of another type", "POST", "/orders/" + id + "/approve", `{"approve": "yes"}`, []string{acme}, 400, []string{"/approve"}},
		{"no answer", "POST", "/orders/" + id + "/approve", `{}`, []string{acme}, 400, []string{""}},
		{"a limit that is none", "GET", "/orders?limit=many", "", []string{acme}, 400, []string{"limit"}},
		{"a limit that is too high", "GET", "/orders?limit=1001", "", []string{acme}, 400, []string{"limit"}},
		{"a cursor that is none", "GET", "/orders?before=x", "", []string{acme}, 400, []string{"before"}},
		{"a status that is none", "GET", "/orders?status=lost", "", []string{acme}, 400, []string{"statuses"}},
		{"a wait that is none", "GET", "/orders/" + id + "?wait=long", "", []string{acme}, 400, []string{"wait"}},
		{"to cancel", "POST", "/orders/" + id + "/cancel", "", []string{acme}, 200, nil},
		{"to cancel again", "POST", "/orders/" + id + "/cancel", "", []string{acme}, 200, nil},
		{"to approve what is cancelled", "POST", "/orders/" + id + "/approve", `{"approve": true}`, []string{acme}, 409, nil},
	} {
		out, answer := exchange(t, test.method, url+test.path, test.body, test.headers...)
		var paths []string
		if listed, ok := answer["errors"].([]any); ok {
			for _, entry := range listed {
				paths = append(paths, entry.(map[string]any)["path"].(string))
			}
		}
		if out.StatusCode != test.status || !slices.Equal(paths, test.paths) {
			t.Errorf("%s: %d %v", test.name, out.StatusCode, answer)
		}
	}
}
