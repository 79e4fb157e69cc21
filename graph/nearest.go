package graph

import "strings"

// nearest is the name of a node type that was probably meant, "" when none is close, or
// when so much is wrong that nothing more is listed.
func (c *compiler) nearest(use string, catalog Catalog) string {
	if len(c.list) >= maxDiagnostics {
		return ""
	}
	best, least := "", 1+max(1, len(use)/3)
	for _, name := range typeNames(catalog) {
		if d := distance(strings.ToLower(use), strings.ToLower(name), least); d < least {
			best, least = name, d
		}
	}
	return best
}

// typeNames are those that a catalog can list, in its order.
func typeNames(catalog Catalog) []string {
	m, ok := catalog.(*Manifest)
	if lister, lists := catalog.(interface{ Manifest() *Manifest }); !ok && lists {
		m = lister.Manifest()
	}
	if m == nil {
		return nil
	}
	names := make([]string, len(m.Nodes))
	for i, t := range m.Nodes {
		names[i] = t.Name
	}
	return names
}

// distance is how many bytes must be put in, left out, replaced, or swapped with the one
// beside them to make a into b. From limit on it is not exact, only no less than limit.
func distance(a, b string, limit int) int {
	if max(len(a), len(b))-min(len(a), len(b)) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, replaced)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
