package claim

import "log/slog"

// Token is the revocable right to commit one run. It is a secret between the
// backend and the claimer: it prints and logs as a placeholder. Tokens are never
// issued twice (clause A7).
type Token string

// String hides the token.
func (Token) String() string { return "[token]" }

// GoString hides the token.
func (Token) GoString() string { return "[token]" }

// LogValue hides the token.
func (Token) LogValue() slog.Value { return slog.StringValue("[token]") }
