package value

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// misfit is one place where a value does not fit a schema.
type misfit struct {
	tokens  []string
	reason  string
	unknown bool // a property that the schema does not declare
}

// explanation puts a failed validation into words.
type explanation struct {
	schema any // the decoded schema, nil when it is not at hand
	data   any // what was validated
}

// errors lists a failed validation's misfits, never none and each once: unknown properties
// before anything else, since one is often what another misfit misses, then in path order. The
// validator lists them in map order.
func (x explanation) errors(invalid *jsonschema.ValidationError) []*Error {
	all := x.misfits(invalid)
	slices.SortFunc(all, func(a, b misfit) int {
		if a.unknown != b.unknown {
			if a.unknown {
				return -1
			}
			return 1
		}
		if c := slices.CompareFunc(a.tokens, b.tokens, compareTokens); c != 0 {
			return c
		}
		return strings.Compare(a.reason, b.reason)
	})
	out := make([]*Error, 0, len(all))
	for _, m := range all {
		var path jsontext.Pointer
		for _, token := range m.tokens {
			path = path.AppendToken(token)
		}
		e := &Error{Path: string(path), Reason: m.reason}
		if n := len(out); n == 0 || out[n-1].Path != e.Path || out[n-1].Reason != e.Reason {
			out = append(out, e)
		}
	}
	return out
}

// compareTokens orders array indexes as numbers.
func compareTokens(a, b string) int {
	i, aIsIndex := index(a)
	j, bIsIndex := index(b)
	if aIsIndex && bIsIndex {
		return i - j
	}
	return strings.Compare(a, b)
}

func index(token string) (int, bool) {
	if token == "" || len(token) > 1 && token[0] == '0' || strings.Trim(token, "0123456789") != "" {
		return 0, false
	}
	i, err := strconv.Atoi(token)
	return i, err == nil
}

// misfits flattens a validation error to the places that explain it; never empty.
func (x explanation) misfits(e *jsonschema.ValidationError) []misfit {
	here := misfit{tokens: e.InstanceLocation}
	switch k := e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		var all []misfit
		for _, cause := range e.Causes {
			all = append(all, x.misfits(cause)...)
		}
		if len(all) > 0 {
			return all
		}
		here.reason = "does not fit the schema"
	case *kind.AnyOf:
		return x.alternative(e, "anyOf")
	case *kind.OneOf:
		if len(k.Subschemas) == 0 {
			return x.alternative(e, "oneOf")
		}
		here.reason = "fits more than one alternative of the schema"
		if names := x.choices(e, "oneOf"); names != nil {
			here.reason = "give only one of " + strings.Join(names, ", ")
		}
	case *kind.AdditionalProperties:
		all := make([]misfit, len(k.Properties))
		for i, name := range k.Properties {
			all[i] = misfit{
				tokens: append(slices.Clone(here.tokens), name), unknown: true,
				reason: fmt.Sprintf("there is no property %s here: %s", strconv.Quote(cut(name)), x.instead(e)),
			}
		}
		return all
	case *kind.PropertyNames:
		// The validator's place of this one is overwritten while it goes on.
		here.tokens, _ = holder(x.data, len(e.InstanceLocation), k.Property)
		here.tokens = append(here.tokens, k.Property)
		here.reason = "the schema does not allow this property name"
	default:
		here.reason = misfitReason(e.ErrorKind)
	}
	return []misfit{here}
}

// alternative explains a value that fits no branch: by the only branch of its type,
// where there is one, which is what an optional value needs, or by the names of which
// one must be there.
func (x explanation) alternative(e *jsonschema.ValidationError, keyword string) []misfit {
	var close []misfit
	branches := 0
	for _, cause := range e.Causes {
		found := x.misfits(cause)
		otherType := slices.ContainsFunc(found, func(m misfit) bool {
			return len(m.tokens) == len(e.InstanceLocation) && strings.HasPrefix(m.reason, typeReason)
		})
		if !otherType {
			close = found
			branches++
		}
	}
	if branches == 1 {
		return close
	}
	reason := "fits no alternative of the schema"
	if names := x.choices(e, keyword); names != nil {
		reason = "give one of " + strings.Join(names, ", ")
	}
	return []misfit{{tokens: e.InstanceLocation, reason: reason}}
}

// part is the schema that refused a value, nil when it is not at hand.
func (x explanation) part(e *jsonschema.ValidationError) map[string]any {
	if x.schema == nil || !strings.HasPrefix(e.SchemaURL, location) {
		return nil
	}
	at, err := lookup(x.schema, fragment(e.SchemaURL))
	if err != nil {
		return nil
	}
	object, _ := at.(map[string]any)
	return object
}

// choices are the names among which alternatives choose, when all they say is which
// properties must be there; nil otherwise.
func (x explanation) choices(e *jsonschema.ValidationError, keyword string) []string {
	branches, _ := x.part(e)[keyword].([]any)
	if len(branches) > mostNames {
		return nil
	}
	var names []string
	for _, branch := range branches {
		object, _ := branch.(map[string]any)
		required, _ := object["required"].([]any)
		if len(object) != 1 || len(required) == 0 || len(required) > mostNames {
			return nil
		}
		together := make([]string, len(required))
		for i, name := range required {
			text, _ := name.(string)
			together[i] = plain(text)
		}
		names = append(names, strings.Join(together, " with "))
	}
	return names
}

// instead says what may stand where an unknown property is.
func (x explanation) instead(e *jsonschema.ValidationError) string {
	part := x.part(e)
	properties, _ := part["properties"].(map[string]any)
	_, patterns := part["patternProperties"]
	switch {
	case part == nil || patterns:
		return "leave it out, or use a name that the schema declares"
	case len(properties) == 0:
		return "leave it out"
	}
	names := slices.Sorted(maps.Keys(properties))
	for i, name := range names {
		names[i] = plain(name)
	}
	last := len(names) - 1
	switch {
	case last == 0:
		return "use " + names[0]
	case last >= mostNames:
		return fmt.Sprintf("use %s or %d more", strings.Join(names[:mostNames], ", "), last+1-mostNames)
	}
	return "use " + strings.Join(names[:last], ", ") + " or " + names[last]
}

// mostNames bounds how many names one message lists.
const mostNames = 20

// plain quotes a name where it needs it, and cuts a long one.
func plain(name string) string {
	const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.$"
	name = cut(name)
	if name != "" && strings.Trim(name, harmless) == "" {
		return name
	}
	return strconv.Quote(name)
}

func cut(name string) string {
	const most = 60
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "..."
	}
	return name
}

// holder is the first object at a depth that has a property.
func holder(data any, depth int, property string) (tokens []string, ok bool) {
	switch data := data.(type) {
	case map[string]any:
		if depth == 0 {
			_, ok = data[property]
			return nil, ok
		}
		for _, name := range slices.Sorted(maps.Keys(data)) {
			if below, ok := holder(data[name], depth-1, property); ok {
				return append([]string{name}, below...), true
			}
		}
	case []any:
		if depth == 0 {
			return nil, false
		}
		for i, element := range data {
			if below, ok := holder(element, depth-1, property); ok {
				return append([]string{strconv.Itoa(i)}, below...), true
			}
		}
	}
	return nil, false
}

const typeReason = "must be of type "

// misfitReason says what the schema wants. It repeats nothing of the value.
func misfitReason(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return typeReason + strings.Join(k.Want, " or ") + ", not " + k.Got
	case *kind.FalseSchema:
		return "the schema allows nothing here: leave it out"
	case *kind.Const:
		return "must be " + schemaText(k.Want)
	case *kind.Enum:
		return "must be one of " + schemaText(k.Want)
	case *kind.Format:
		return "must be a valid " + k.Want
	case *kind.Required:
		return "must have " + properties(k.Missing)
	case *kind.DependentRequired:
		return "must have " + properties(k.Missing) + ", since it has " + strconv.Quote(k.Prop)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d properties, not %d", k.Want, k.Got)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d properties, not %d", k.Want, k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d elements, not %d", k.Want, k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d elements, not %d", k.Want, k.Got)
	case *kind.UniqueItems:
		return fmt.Sprintf("the elements %d and %d are equal and must not be", k.Duplicates[0], k.Duplicates[1])
	case *kind.Contains:
		return "no element is what the schema says one must be"
	case *kind.MinContains:
		return fmt.Sprintf("%d elements are what the schema says at least %d must be", len(k.Got), k.Want)
	case *kind.MaxContains:
		return fmt.Sprintf("%d elements are what the schema says at most %d may be", len(k.Got), k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters, not %d", k.Want, k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters, not %d", k.Want, k.Got)
	case *kind.Pattern:
		return "must match the pattern " + strconv.Quote(k.Want)
	case *kind.Minimum:
		return "must be at least " + decimal(k.Want)
	case *kind.Maximum:
		return "must be at most " + decimal(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be greater than " + decimal(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be less than " + decimal(k.Want)
	case *kind.MultipleOf:
		return "must be a multiple of " + decimal(k.Want)
	case *kind.Not:
		return "is what the schema says it must not be"
	case *kind.RefCycle:
		return "the schema refers to itself without end"
	}
	return "does not fit the schema"
}

func properties(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range slices.Sorted(slices.Values(names)) {
		quoted[i] = strconv.Quote(name)
	}
	if len(quoted) == 1 {
		return "the property " + quoted[0]
	}
	return "the properties " + strings.Join(quoted, ", ")
}

// schemaText is a part of the schema as JSON, unless it is long.
func schemaText(v any) string {
	const most = 200
	text, err := jsonv2.Marshal(v, encoding)
	if err != nil || len(text) > most {
		return "what the schema lists"
	}
	return string(text)
}

// decimal is a schema's number without a fraction bar.
func decimal(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	digits, exact := r.FloatPrec()
	if !exact {
		return r.RatString()
	}
	return r.FloatString(digits)
}
