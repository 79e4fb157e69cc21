package run

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// parseInstant agrees with time.Parse about everything that it does not leave to it, and leaves it
// nothing that encoder writes.
func TestInstantsAreReadAsTimeParseReadsThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.Int64Range(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(), latest.UnixMicro()).Draw(t, "instant")
		written := []byte(`"` + time.UnixMicro(micros).UTC().Format(wire) + `"`)
		if got, ok := parseInstant(written); !ok || got != time.UnixMicro(micros).UTC() {
			t.Fatalf("%s is read as %v, %v", written, got, ok)
		}
		written[rapid.IntRange(0, len(written)-1).Draw(t, "at")] = rapid.SampledFrom([]byte(`0123456789:-.TZz "+,`)).Draw(t, "byte")
		got, ok := parseInstant(written)
		want, err := time.Parse(wire, string(written[1:len(written)-1]))
		if ok && (err != nil || got != want || written[0] != '"' || written[len(written)-1] != '"') {
			t.Fatalf("%s is read as %v: %v, %v", written, got, want, err)
		}
	})
	for _, wrong := range []string{
		`"2026-02-29T00:00:00.000000Z"`, `"2026-00-10T00:00:00.000000Z"`, `"2026-13-10T00:00:00.000000Z"`, `"2026-01-00T00:00:00.000000Z"`,
		`"2026-01-01T24:00:00.000000Z"`, `"2026-01-01T00:60:00.000000Z"`, `"2026-01-01T00:00:60.000000Z"`, `"2026-01-01T00:00:00.00000Z"`, ``, `1`,
	} {
		if got, ok := parseInstant([]byte(wrong)); ok {
			t.Errorf("%s is read as %v", wrong, got)
		}
	}
}

// What one document was read with is used for the next, and leaves no trace in either.
func TestReadersAreUsedAgainAfterWhateverTheyRead(t *testing.T) {
	for name, d := range specimens() {
		raw, err := Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		first, err := Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		for _, broken := range [][]byte{raw[:len(raw)/2], raw[:len(raw)-1], []byte(`{"format":2,"run":{"id":[{"a":[`), append(raw[:len(raw):len(raw)], '}'), nil} {
			if _, err := Decode(broken); err == nil {
				t.Fatalf("%s: %s is read", name, broken)
			}
			again, err := Decode(raw)
			if err != nil {
				t.Fatalf("%s after %s: %v", name, broken, err)
			}
			for which, d := range map[string]*Document{"first": first, "second": again} {
				if now, err := Encode(d); err != nil || string(now) != string(raw) {
					t.Fatalf("%s after %s: the %s is %s, %v", name, broken, which, now, err)
				}
			}
		}
	}
}
