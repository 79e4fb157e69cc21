package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"strings"
)

// The picture's measures, in pixels.
const (
	pictureWidth = 760
	labelWidth   = 290
	barsWidth    = 330
	lineHeight   = 26
	headHeight   = 58
	// decades is how far the scale reaches to each side of the target: a hundredth and a hundred times.
	decades = 2.0
)

// picture draws each target as a bar: how far its ratio is from what was to be reached, on a
// logarithmic scale whose middle is the target. To the right is better, whichever way a metric counts;
// the thin line is the spread.
func (r *report) picture() string {
	type bar struct {
		label, value     string
		middle, from, to float64
		met              bool
	}
	var bars []bar
	for _, row := range r.Rows {
		for _, c := range row.Contests {
			for _, t := range c.Targets {
				if t.Value.Median <= 0 {
					continue
				}
				goodness := func(v float64) float64 {
					if v <= 0 {
						return decades
					}
					if t.Least > 0 {
						return math.Log10(v / t.Least)
					}
					return math.Log10(t.Most / v)
				}
				label := row.ID
				if c.Name != "" {
					label += ", " + c.Name
				}
				label += ": " + t.subject()
				bars = append(bars, bar{
					label: label, value: number(t.Value.Median) + " (" + t.bound() + ")",
					middle: goodness(t.Value.Median), from: goodness(t.Value.Min), to: goodness(t.Value.Max), met: t.Met,
				})
			}
		}
	}
	height := headHeight + lineHeight*len(bars) + 16
	x := func(g float64) float64 {
		g = max(-decades, min(decades, g))
		return labelWidth + barsWidth*(g+decades)/(2*decades)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12" role="img">`+"\n",
		pictureWidth, height, pictureWidth, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", escaped("Measured against the targets: the line in the middle is the target, to the right is better"))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", pictureWidth, height)
	fmt.Fprintf(&b, `<text x="12" y="20" font-size="14" font-weight="bold">%s</text>`+"\n", "Against the targets: right of the line is better than asked")
	for _, mark := range []struct {
		at   float64
		text string
	}{{-2, "1/100"}, {-1, "1/10"}, {0, "target"}, {1, "10 x"}, {2, "100 x"}} {
		colour := "#d8d8d8"
		if mark.at == 0 {
			colour = "#222222"
		}
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s"/>`+"\n", x(mark.at), headHeight-10, x(mark.at), height-10, colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#555555">%s</text>`+"\n", x(mark.at), headHeight-16, mark.text)
	}
	for i, bar := range bars {
		y := headHeight + lineHeight*i
		colour := "#2f855a"
		if !bar.met {
			colour = "#c05621"
		}
		left, right := min(x(0), x(bar.middle)), max(x(0), x(bar.middle))
		fmt.Fprintf(&b, `<text x="12" y="%d">%s</text>`+"\n", y+14, escaped(bar.label))
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="14" fill="%s"/>`+"\n", left, y+3, max(1, right-left), colour)
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#222222"/>`+"\n", x(bar.from), y+10, x(bar.to), y+10)
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#222222">%s</text>`+"\n", labelWidth+barsWidth+10, y+14, escaped(bar.value))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

func (r *report) draw(path string) error {
	return os.WriteFile(path, []byte(r.picture()), 0o644)
}
