package std_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/run"
)

// request is what a server was sent.
type request struct {
	Method, Path, Query, Body, Host string
	Header                          http.Header
}

// server answers every request the same, and keeps the last one.
func server(t *testing.T, status int, header map[string]string, body string) (address string, got *request) {
	t.Helper()
	got = &request{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*got = request{r.Method, r.URL.Path, r.URL.RawQuery, string(raw), r.Host, r.Header}
		for name, v := range header {
			w.Header().Set(name, v)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

func TestHTTPSendsWhatTheConfigSays(t *testing.T) {
	reads := map[string]string{"id": "9007199254740993", "o": `{"a":"<x>","b":1.0}`, "token": `"s3cret"`}
	tests := map[string]struct {
		config string // without the address
		want   request
		header map[string]string
	}{
		"get": {
			`"url":"ADDR/orders/${id}?x=1"`,
			request{Method: "GET", Path: "/orders/9007199254740993", Query: "x=1"},
			map[string]string{"Idempotency-Key": "r:1:n", "Content-Type": ""},
		},
		"variable": {
			`"url":"ADDR","method":"POST","body":"${o}"`,
			request{Method: "POST", Path: "/", Body: `{"a":"<x>","b":1.0}`},
			map[string]string{"Content-Type": "application/json"},
		},
		"object": {
			`"url":"ADDR","method":"PUT","body":{"$id":"${id}","l":[1.50]}`,
			request{Method: "PUT", Path: "/", Body: `{"$id":9007199254740993,"l":[1.50]}`},
			map[string]string{"Content-Type": "application/json"},
		},
		"text": {
			`"url":"ADDR","method":"PATCH","body":"id=${id}","headers":{"Content-Type":"application/x-www-form-urlencoded"}`,
			request{Method: "PATCH", Path: "/", Body: "id=9007199254740993"},
			map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
		},
		"plain text": {
			`"url":"ADDR","method":"POST","body":"x"`,
			request{Method: "POST", Path: "/", Body: "x"},
			map[string]string{"Content-Type": "text/plain; charset=utf-8"},
		},
		"headers": {
			`"url":"ADDR","method":"DELETE","headers":{"authorization":"Bearer ${token}","Idempotency-Key":"mine","host":"example.com"}`,
			request{Method: "DELETE", Path: "/", Host: "example.com"},
			map[string]string{"Authorization": "Bearer s3cret", "Idempotency-Key": "mine"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			address, got := server(t, 204, nil, "")
			place(t, "http", "{"+strings.ReplaceAll(tt.config, "ADDR", address)+"}", reads, "status").completed(t)
			for name, want := range tt.header {
				if v := got.Header.Get(name); v != want {
					t.Errorf("%s is %q, want %q", name, v, want)
				}
			}
			got.Header = nil
			if tt.want.Host == "" {
				tt.want.Host = strings.TrimPrefix(address, "http://")
			}
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHTTPWritesTheResponse(t *testing.T) {
	tests := map[string]struct {
		status       int
		contentType  string
		body, config string
		want         string // of the body
	}{
		"JSON":              {200, "application/json", `{"b":9007199254740993, "a":1.0}`, "", `{"a":1.0,"b":9007199254740993}`},
		"JSON with charset": {201, "application/json; charset=utf-8", `[1]`, "", `[1]`},
		"problem":           {200, "application/problem+json", `null`, "", `null`},
		"no content":        {204, "application/json", "", "", "null"},
		"blank JSON":        {200, "application/json", " \n", "", "null"},
		"text":              {200, "text/plain", "a <b>", "", `"a <b>"`},
		"no type":           {200, "", `{"a":1}`, "", `"{\"a\":1}"`},
		"bad UTF-8":         {200, "text/plain", "a\xff", "", `"a` + "\uFFFD" + `"`},
		"JSON as text":      {200, "application/json", `{"$a": 1}`, `,"response":"text"`, `"{\"$a\": 1}"`},
		"exact":             {200, "image/png", "\xff\x00", `,"response":"base64"`, `"/wA="`},
		"listed status":     {404, "text/plain", "none", `,"ok_status":[404]`, `"none"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			address, _ := server(t, tt.status, map[string]string{"Content-Type": tt.contentType, "X-Two": "b"}, tt.body)
			got := place(t, "http", fmt.Sprintf(`{"url":%q%s}`, address, tt.config), nil, "status", "body", "headers").completed(t)
			if got["status"] != fmt.Sprint(tt.status) {
				t.Errorf("status %s", got["status"])
			}
			if diff := cmp.Diff(tt.want, got["body"]); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			var headers map[string]string
			if err := json.Unmarshal([]byte(got["headers"]), &headers); err != nil || headers["x-two"] != "b" {
				t.Errorf("headers %s, %v", got["headers"], err)
			}
		})
	}
}

func TestHTTPStatusesThatAreNotOK(t *testing.T) {
	tests := map[string]struct {
		status     int
		retryAfter string
		config     string
		kind       run.ResultKind
		until      time.Time
	}{
		"400":                {400, "", "", run.ResultPermanent, time.Time{}},
		"404":                {404, "60", "", run.ResultPermanent, time.Time{}},
		"304":                {304, "", "", run.ResultPermanent, time.Time{}},
		"429":                {429, "", "", run.ResultRetry, time.Time{}},
		"500":                {500, "", "", run.ResultRetry, time.Time{}},
		"599":                {599, "", "", run.ResultRetry, time.Time{}},
		"429 in seconds":     {429, "90", "", run.ResultRetry, noon.Add(90 * time.Second)},
		"503 in 0 seconds":   {503, " 0 ", "", run.ResultRetry, noon},
		"503 at a date":      {503, "Wed, 02 Jan 2030 13:00:00 GMT", "", run.ResultRetry, noon.Add(time.Hour)},
		"503 at a past date": {503, "Wed, 02 Jan 2019 13:00:00 GMT", "", run.ResultRetry, time.Date(2019, 1, 2, 13, 0, 0, 0, time.UTC)},
		"503 in ages":        {503, "99999999999999999999999", "", run.ResultRetry, noon.Add(1 << 31 * time.Second)},
		"503 at nonsense":    {503, "soon", "", run.ResultRetry, time.Time{}},
		"503 at -1":          {503, "-1", "", run.ResultRetry, time.Time{}},
		"200 unlisted":       {200, "", `,"ok_status":[201]`, run.ResultPermanent, time.Time{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			header := map[string]string{}
			if tt.retryAfter != "" {
				header["Retry-After"] = tt.retryAfter
			}
			body := strings.Repeat("x", 5000)
			if tt.status == 304 {
				body = ""
			}
			address, _ := server(t, tt.status, header, body)
			s := place(t, "http", fmt.Sprintf(`{"url":"%s/?key=s3cret"%s}`, address, tt.config), nil, "status")
			r := s.run(t, t.Context())
			f, _ := r.Failure()
			if r.Kind() != tt.kind || !r.Until().Equal(tt.until) {
				t.Errorf("result %v not before %v, want %v, %v", r.Kind(), r.Until(), tt.kind, tt.until)
			}
			if !strings.Contains(f.Message, fmt.Sprintf("answered %d", tt.status)) || strings.Contains(f.Message, "s3cret") {
				t.Errorf("failure %+v", f)
			}
			var details struct {
				Status int    `json:"status"`
				Head   string `json:"body_head"`
			}
			if err := json.Unmarshal(f.Details, &details); err != nil || details.Status != tt.status || len(details.Head) != min(len(body), 4<<10) {
				t.Errorf("details %s, %v", f.Details, err)
			}
		})
	}
}

func TestH26HTTPBodyLimit(t *testing.T) {
	for _, size := range []int{99, 100, 101, 5000} {
		address, _ := server(t, 200, nil, strings.Repeat("x", size))
		s := place(t, "http", fmt.Sprintf(`{"url":%q,"max_body":100}`, address), nil, "body")
		if size <= 100 {
			if got := s.completed(t)["body"]; len(got) != size+2 {
				t.Errorf("%d bytes: %d", size, len(got))
			}
			continue
		}
		if f := s.failed(t, run.ResultPermanent); f.Code != run.CodeTooLarge || !strings.Contains(f.Message, "the limit is 100") {
			t.Errorf("%d bytes: %+v", size, f)
		}
	}
}

func TestHTTPFailuresOnTheWayAreRetryable(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "short")
	}))
	t.Cleanup(broken.Close)
	liar, _ := server(t, 200, map[string]string{"Content-Type": "application/json"}, "<html>")
	for name, tt := range map[string]struct{ address, want string }{
		"refused": {closed.URL, "failed: dial"},
		"broken":  {broken.URL, "reading the response of"},
		"no JSON": {liar, "says that it is JSON and is not"},
	} {
		t.Run(name, func(t *testing.T) {
			f := place(t, "http", fmt.Sprintf(`{"url":"%s/s3cret?key=s3cret"}`, tt.address), nil, "body").failed(t, run.ResultRetry)
			if !strings.Contains(f.Message, tt.want) || strings.Contains(f.Message, "s3cret") {
				t.Errorf("failure %+v does not say %q", f, tt.want)
			}
		})
	}
}

func TestHTTPRequestsThatCannotBeMade(t *testing.T) {
	reads := map[string]string{"bad": `"not an address"`, "lines": `"a\r\nX-Evil: 1"`, "nul": "null", "reserved": `{"a":1}`}
	address, got := server(t, 200, map[string]string{"Content-Type": "application/json"}, `{"$ref":1}`)
	tests := map[string]struct{ config, code, want string }{
		"address":       {`{"url":"${bad}"}`, run.CodeError, "config/url: it is not an absolute http or https address"},
		"null address":  {`{"url":"http://x/${nul}"}`, run.CodeError, "config/url: ${nul} is null"},
		"line break":    {fmt.Sprintf(`{"url":%q,"headers":{"X-A":"${lines}"}}`, address), run.CodeError, "config/headers/X-A: a header holds a control character"},
		"reserved name": {fmt.Sprintf(`{"url":%q}`, address), run.CodeInvalidUpdate, "at /body/$ref"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := place(t, "http", tt.config, reads, "body").failed(t, run.ResultPermanent)
			if f.Code != tt.code || !strings.Contains(f.Message, tt.want) {
				t.Errorf("failure %+v does not say %q", f, tt.want)
			}
		})
	}
	if v := got.Header.Get("X-Evil"); v != "" {
		t.Error("a header was smuggled in")
	}
}

func TestHTTPDeadlineEndsTheRequest(t *testing.T) {
	arrived := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-arrived
		cancel(context.DeadlineExceeded)
	}()
	r := place(t, "http", fmt.Sprintf(`{"url":%q}`, s.URL), nil).run(t, ctx)
	if f, _ := r.Failure(); r.Kind() != run.ResultRetry || f.Code != run.CodeTimeout {
		t.Errorf("result %v, %+v", r.Kind(), f)
	}
}
