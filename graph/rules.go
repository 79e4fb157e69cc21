package graph

import (
	"fmt"
	"slices"
	"strings"
)

//go:generate go run ./internal/rulespage ../docs/diagnostics.md

// The stable codes of diagnostics.
const (
	codeInvalidJSON         = "invalid_json"
	codeInvalidYAML         = "invalid_yaml"
	codeUnknownMember       = "unknown_member"
	codeDuplicateMember     = "duplicate_member"
	codeMissingMember       = "missing_member"
	codeWrongType           = "wrong_type"
	codeInvalidValue        = "invalid_value"
	codeInvalidID           = "invalid_id"
	codeDuplicateName       = "duplicate_name"
	codeMissingSchema       = "missing_schema"
	codeInvalidSchema       = "invalid_schema"
	codeInvalidDefault      = "invalid_default"
	codeUnknownReducer      = "unknown_reducer"
	codeBadReducer          = "bad_reducer"
	codeReducerMismatch     = "reducer_mismatch"
	codeUnknownNodeType     = "unknown_node_type"
	codeUnsupportedVersion  = "unsupported_version"
	codeMissingVersion      = "missing_version"
	codeInvalidNodeType     = "invalid_node_type"
	codeInvalidConfig       = "invalid_config"
	codeUnexpectedConfig    = "unexpected_config"
	codeUnknownPort         = "unknown_port"
	codeUndeclaredRead      = "undeclared_read"
	codeUndeclaredWrite     = "undeclared_write"
	codeWritesInput         = "writes_input"
	codeRepeatedWrite       = "repeated_write"
	codeMissingRequiredRead = "missing_required_read"
	codePortMismatch        = "port_mismatch"
	codeTimeoutAboveMaximum = "timeout_above_maximum"
	codeInvalidRetry        = "invalid_retry"
	codeInvalidPolicy       = "invalid_policy"
	codeUnknownEdgeSource   = "unknown_edge_source"
	codeUnknownEdgeTarget   = "unknown_edge_target"
	codeEmptySources        = "empty_sources"
	codeDuplicateSource     = "duplicate_source"
	codeStartInBarrier      = "start_in_barrier"
	codeBadGuard            = "bad_guard"
	codeUnknownGuardField   = "unknown_guard_field"
	codeNoEntryPoint        = "no_entry_point"
	codeUnreachableNode     = "unreachable_node"
	codeUnknownOutputSource = "unknown_output_source"
	codeUnboundedCycle      = "unbounded_cycle"
	codeDeadEnd             = "dead_end"
	codeUnusedInput         = "unused_input"
	codeUnusedField         = "unused_field"
	codeAmbiguousWrite      = "ambiguous_write"
	codeRequiredDefault     = "required_default"
	codeTooMany             = "too_many_problems"
	codeTooManyWarnings     = "too_many_warnings"
	codeUncheckedConfig     = "unchecked_config"
)

// Rule is one entry of the catalogue of diagnostics.
type Rule struct {
	Code     string
	Severity Severity
	// Broken says what is wrong when the diagnostic appears.
	Broken string
	// Remedy says what to do.
	Remedy string
}

// Rules is the catalogue of diagnostics, by code. A code keeps its meaning for good.
func Rules() []Rule { return slices.Clone(rules) }

var rules = []Rule{
	{codeAmbiguousWrite, SeverityWarning, "Two nodes that may run in the same superstep write one field whose reducer is replace: the last by node id wins.", "Choose another reducer, write different fields, or make the branches exclude each other with guards."},
	{codeBadGuard, SeverityError, "A guard does not compile, does not give true or false, or uses what is not available.", "Correct the expression."},
	{codeBadReducer, SeverityError, "An option does not belong to the reducer or has a value out of range.", "Remove or correct the option."},
	{codeDeadEnd, SeverityWarning, "No edge leads on from a node.", "Add an edge, to $finish if the branch ends there."},
	{codeDuplicateMember, SeverityError, "A name is written twice in one object.", "Keep one of them."},
	{codeDuplicateName, SeverityError, "An input and a field have one name; they share one namespace.", "Rename one of them."},
	{codeDuplicateSource, SeverityError, "A barrier lists a source twice.", "List each source once."},
	{codeEmptySources, SeverityError, "An edge has no source.", "Name $start, a node, or the nodes of a barrier."},
	{codeInvalidConfig, SeverityError, "A node's config does not fit its type.", "Correct the config as the message says."},
	{codeInvalidDefault, SeverityError, "A default does not fit its schema, or is not a state value.", "Correct the default or the schema."},
	{codeInvalidID, SeverityError, "An id or name is not letters, digits, _ and -, beginning with a letter or digit, of at most 128 characters.", "Rename it."},
	{codeInvalidJSON, SeverityError, "The text is not one JSON document.", "Correct the syntax at the place named."},
	{codeInvalidNodeType, SeverityError, "A node type in the catalog or manifest contradicts itself.", "Correct the node type, then write the manifest anew."},
	{codeInvalidPolicy, SeverityError, "A policy has a value out of range.", "Correct the value."},
	{codeInvalidRetry, SeverityError, "A retry policy has a value out of range.", "Use at least one attempt, a factor of at least 1, and a cap no smaller than the initial delay."},
	{codeInvalidSchema, SeverityError, "A schema is not valid JSON Schema 2020-12, or refers to something outside the document.", "Correct the schema; shared parts belong under $defs."},
	{codeInvalidValue, SeverityError, "A member's value is of the right type but cannot be read.", "Correct the value as the message says."},
	{codeInvalidYAML, SeverityError, "The text is not one YAML document, or uses a part of YAML that JSON cannot express.", "Correct it as the message says."},
	{codeMissingMember, SeverityError, "A member that must be there is missing.", "Add it."},
	{codeMissingRequiredRead, SeverityError, "A node type requires a read that the node does not bind.", "Declare the name as an input or field, or bind the read to another one under reads."},
	{codeMissingSchema, SeverityError, "An input or field has no schema.", "Add one; {} admits any value."},
	{codeMissingVersion, SeverityError, "A published graph has a node without a contract version.", "Publish the graph again."},
	{codeNoEntryPoint, SeverityError, "No edge leads from $start to a node.", "Add one."},
	{codePortMismatch, SeverityError, "A node type's port and the state name bound to it have no JSON type in common.", "Bind another name or change the schema."},
	{codeReducerMismatch, SeverityError, "A reducer cannot give a value of its field's schema.", "Change the reducer or the schema's type."},
	{codeRepeatedWrite, SeverityError, "A node binds two of its writes to one field.", "Bind them to different fields."},
	{codeRequiredDefault, SeverityWarning, "A required input has a default, which is never used.", "Remove required or the default."},
	{codeStartInBarrier, SeverityError, "A barrier lists $start among its sources.", "Use an edge of its own from $start."},
	{codeTimeoutAboveMaximum, SeverityError, "A node's timeout is above the maximum of its type.", "Lower the timeout."},
	{codeTooMany, SeverityError, "The document has more errors than are listed.", "Correct those that are listed first."},
	{codeTooManyWarnings, SeverityWarning, "The document has more warnings than are listed.", "Look at those that are listed first."},
	{codeUnboundedCycle, SeverityWarning, "The graph has a cycle and no max_supersteps bounds it.", "Set policies.max_supersteps."},
	{codeUncheckedConfig, SeverityWarning, "A node names an older contract version that its type still accepts; the config was not checked against that version.", "Name the newer version, or leave the version out."},
	{codeUndeclaredRead, SeverityError, "A node reads a name that is neither an input nor a field.", "Declare it or read another."},
	{codeUndeclaredWrite, SeverityError, "A node writes a name that is not a field.", "Declare it under fields or write another."},
	{codeUnexpectedConfig, SeverityError, "A node has a config but its type takes none.", "Remove the config."},
	{codeUnknownEdgeSource, SeverityError, "An edge comes from something that is not a node or $start.", "Name a node or $start."},
	{codeUnknownEdgeTarget, SeverityError, "An edge leads to something that is not a node or $finish.", "Name a node or $finish."},
	{codeUnknownGuardField, SeverityError, "A guard names a field that is neither an input nor a field.", "Declare it or name another."},
	{codeUnknownMember, SeverityError, "A member is not part of a graph document.", "Correct its spelling or remove it."},
	{codeUnknownNodeType, SeverityError, "A node uses a type the catalog does not have.", "Register the type, or correct the name."},
	{codeUnknownOutputSource, SeverityError, "An output copies a name that is neither an input nor a field.", "Declare it or name another."},
	{codeUnknownPort, SeverityError, "A node binds a read or write that its type does not have.", "Use one of the type's names."},
	{codeUnknownReducer, SeverityError, "A reducer's name is unknown.", "Use replace, first, append, union, merge or sum."},
	{codeUnreachableNode, SeverityError, "No path of edges leads from $start to a node.", "Add an edge to it or remove it."},
	{codeUnsupportedVersion, SeverityError, "The catalog has the node type, but not in the contract version named.", "Name a version the catalog has, or leave it out."},
	{codeUnusedField, SeverityWarning, "No node reads a field, no guard names it, and no output copies it.", "Remove it, or use it."},
	{codeUnusedInput, SeverityWarning, "No node reads an input, no guard names it, and no output copies it.", "Remove it, or use it."},
	{codeWritesInput, SeverityError, "A node writes an input; only the start of a run does.", "Write a field."},
	{codeWrongType, SeverityError, "A member's value is of the wrong JSON type.", "Write the type the message names."},
}

var severities = func() map[string]Severity {
	m := make(map[string]Severity, len(rules))
	for _, r := range rules {
		m[r.Code] = r.Severity
	}
	return m
}()

func severityOf(code string) Severity { return severities[code] }

// RulesMarkdown is the catalogue as a page of documentation.
func RulesMarkdown() string {
	var b strings.Builder
	b.WriteString("# Diagnostics of graph documents\n\n")
	b.WriteString("Every problem of a graph document has a stable code, a path (a JSON Pointer into\nthe document) and a sentence that says what to do. Errors stop publication,\nwarnings do not. `belay graph check` lists them all at once.\n\n")
	b.WriteString("This page is generated from the catalogue in package `graph`.\n")
	for _, severity := range []Severity{SeverityError, SeverityWarning} {
		fmt.Fprintf(&b, "\n## %ss\n\n| code | what is wrong | what to do |\n|---|---|---|\n", capital(string(severity)))
		for _, r := range rules {
			if r.Severity == severity {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Code, r.Broken, r.Remedy)
			}
		}
	}
	return b.String()
}
