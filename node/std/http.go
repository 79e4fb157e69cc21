package std

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/value"
)

const httpConfigSchema = `{
  "type": "object",
  "description": "Makes an HTTP request. The idempotency key of the task is sent as Idempotency-Key, unless the headers set one. A status that is not ok is a failure whose details hold the status and the beginning of the body: a retryable one for 429 and 5xx (no earlier than Retry-After says), a permanent one for any other. What fails on the way is retryable.",
  "additionalProperties": false,
  "required": ["url"],
  "properties": {
    "method": {"type": "string", "pattern": "^[A-Z]+$", "default": "GET", "description": "The method, in capitals."},
    "url": {"type": "string", "minLength": 1, "description": "An absolute http or https address. Values are put in as they are: escape them where they are made."},
    "headers": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Headers by name, in addition. The values may hold expressions."},
    "body": {"description": "A text is sent as it is, anything else as JSON, with the Content-Type to fit unless the headers set one."},
    "ok_status": {
      "type": "array", "items": {"type": "integer", "minimum": 200, "maximum": 599}, "minItems": 1,
      "description": "The statuses that are success. Defaults to 200 to 299."
    },
    "response": {
      "enum": ["auto", "text", "base64"], "default": "auto",
      "description": "How the body is kept: auto is JSON when its Content-Type says so (null when it is empty), else text, where each byte that is not UTF-8 becomes U+FFFD; base64 is exact."
    },
    "max_body": {
      "type": "integer", "minimum": 1, "maximum": 8388608, "default": 1048576,
      "description": "The most bytes of the response's body. Beyond it the run fails: nothing is cut."
    }
  }
}`

// httpType makes a request. It writes status, body, and headers (by lower-case name;
// several values of one are joined by ", "). A status that is not ok is a failure whose
// details hold the status and the beginning of the body: a retryable one for 429 and 5xx
// (no earlier than Retry-After), a permanent one for any other. What fails on the way is
// retryable.
func httpType() node.Type {
	return newType(graph.NodeType{
		Name: "http", Version: 1, OpenReads: true, Config: value.Value(httpConfigSchema),
		Writes: map[string]graph.Port{
			"status":  {Schema: value.Value(`{"type": "integer", "description": "The status code, one that is ok."}`)},
			"body":    {Schema: value.Value(`{"description": "The response's body, as the config's response says."}`)},
			"headers": {Schema: value.Value(`{"type": "object", "description": "The response's headers by lower-case name; several values of one are joined by a comma and a space."}`)},
		},
	}, func(config value.Value, names scope, _ []string) (node.Func, error) {
		r, err := newRequest(config, names)
		if err != nil {
			return nil, err
		}
		return r.run, nil
	})
}

// client has no timeout of its own: a request lasts as long as its attempt may.
var client = &http.Client{}

// request is a prepared http node.
type request struct {
	method   string
	url      template
	headers  map[string]template
	body     *tree
	okStatus []int
	response string
	maxBody  int
}

func newRequest(config value.Value, names scope) (*request, error) {
	in := struct {
		Method   string            `json:"method"`
		URL      string            `json:"url"`
		Headers  map[string]string `json:"headers"`
		Body     value.Value       `json:"body"`
		OKStatus []int             `json:"ok_status"`
		Response string            `json:"response"`
		MaxBody  int               `json:"max_body"`
	}{Method: http.MethodGet, MaxBody: 1 << 20}
	if err := json.Unmarshal(config, &in); err != nil {
		return nil, err
	}
	r := &request{method: in.Method, headers: map[string]template{}, okStatus: in.OKStatus, response: in.Response, maxBody: in.MaxBody}
	var errs []error
	var err error
	r.url, err = names.template(in.URL, "/url")
	errs = append(errs, err)
	if text, ok := r.url.literal(); ok && err == nil {
		_, err := address(text)
		errs = append(errs, at("/url", err))
	}
	for _, name := range slices.Sorted(maps.Keys(in.Headers)) {
		path := "/headers/" + escape(name)
		if !headerName(name) {
			errs = append(errs, &value.Error{Path: path, Reason: "it is not the name of an HTTP header: use letters, digits and -"})
		}
		r.headers[name], err = names.template(in.Headers[name], path)
		errs = append(errs, err)
	}
	if in.Body != nil {
		t, err := names.tree(in.Body, "/body")
		r.body, errs = &t, append(errs, err)
	}
	return r, errors.Join(errs...)
}

// address reads an absolute http address. Its errors do not repeat it.
func address(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("it is not an absolute http or https address: write it as https://host/path, with special characters escaped")
	}
	return u, nil
}

// headerName reports whether a name may be that of a header (a token of RFC 9110).
func headerName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r > '~' || r <= ' ' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

func (r *request) run(ctx context.Context, call *node.Call) (map[string]value.Value, error) {
	req, err := r.build(ctx, call)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		// The address, which the error repeats, may hold secrets.
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("the request to %s failed: %w", req.URL.Host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(r.maxBody)+1))
	if err != nil {
		return nil, fmt.Errorf("reading the response of %s failed: %w", req.URL.Host, err)
	}
	if !r.ok(resp.StatusCode) {
		return nil, refused(req, resp, body, call.Now())
	}
	if len(body) > r.maxBody {
		return nil, &value.LimitError{What: "the response's body", Size: len(body), Limit: r.maxBody}
	}
	kept, err := r.kept(resp, body)
	if err != nil {
		return nil, err
	}
	headers := map[string]string{}
	for name, values := range resp.Header {
		headers[strings.ToLower(name)] = asUTF8([]byte(strings.Join(values, ", ")))
	}
	return written(call, map[string]any{"status": resp.StatusCode, "body": kept, "headers": headers})
}

func (r *request) build(ctx context.Context, call *node.Call) (*http.Request, error) {
	text, err := r.url.text(call.Reads)
	if err != nil {
		return nil, err
	}
	u, err := address(text)
	if err != nil {
		return nil, node.Permanent(fmt.Errorf("config/url: %w", err))
	}
	body, contentType, err := r.content(call.Reads)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, node.Permanent(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("Idempotency-Key", call.IdempotencyKey)
	for _, name := range slices.Sorted(maps.Keys(r.headers)) {
		text, err := r.headers[name].text(call.Reads)
		if err != nil {
			return nil, err
		}
		if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			return nil, node.Permanent(fmt.Errorf("config/headers/%s: a header holds a control character, such as a line break: remove it", escape(name)))
		}
		if strings.EqualFold(name, "Host") {
			req.Host = text
		}
		req.Header.Set(name, text)
	}
	return req, nil
}

func (r *request) content(reads map[string]value.Value) (body io.Reader, contentType string, err error) {
	if r.body == nil {
		return nil, "", nil
	}
	v, err := r.body.value(reads)
	if err != nil {
		return nil, "", err
	}
	if v[0] != '"' {
		return strings.NewReader(string(v)), "application/json", nil
	}
	text, err := asText(v)
	return strings.NewReader(text), "text/plain; charset=utf-8", err
}

func (r *request) ok(status int) bool {
	if r.okStatus == nil {
		return status >= 200 && status <= 299
	}
	return slices.Contains(r.okStatus, status)
}

// kept is the body as it is written.
func (r *request) kept(resp *http.Response, body []byte) (value.Value, error) {
	switch {
	case r.response == "base64":
		return value.Of(base64.StdEncoding.EncodeToString(body))
	case r.response == "text" || !isJSON(resp.Header.Get("Content-Type")):
		return value.Of(asUTF8(body))
	case len(strings.TrimSpace(string(body))) == 0:
		return value.Null(), nil
	}
	v, err := value.Canonical(body)
	if err != nil {
		return nil, fmt.Errorf("the response says that it is JSON and is not: %w", err)
	}
	return v, nil
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// refused is the failure of a status that is not ok.
func refused(req *http.Request, resp *http.Response, body []byte, now time.Time) error {
	err := node.WithDetails(fmt.Errorf("%s answered %d %s", req.URL.Host, resp.StatusCode, http.StatusText(resp.StatusCode)),
		map[string]any{"status": resp.StatusCode, "body_head": head(body)})
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < 500 {
		return node.Permanent(err)
	}
	if at, ok := retryAfter(resp.Header.Get("Retry-After"), now); ok {
		return node.RetryAfter(err, at)
	}
	return err
}

// head is the beginning of a body as text.
func head(body []byte) string {
	if len(body) > maxTail {
		body = body[:maxTail]
	}
	return asUTF8(body)
}

// retryAfter reads a Retry-After header: seconds, or a date.
func retryAfter(header string, now time.Time) (time.Time, bool) {
	header = strings.TrimSpace(header)
	if header == "" {
		return time.Time{}, false
	}
	if strings.Trim(header, "0123456789") == "" {
		// More than that is as good as never, and would overflow.
		const most = 1 << 31
		seconds, err := strconv.ParseInt(header, 10, 64)
		if err != nil || seconds > most {
			seconds = most
		}
		return now.Add(time.Duration(seconds) * time.Second), true
	}
	at, err := http.ParseTime(header)
	return at, err == nil
}
