package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// p10 asks the engine's own test, which holds ten thousand runs in a node each.
func p10() row {
	return row{
		id: "P10", work: "10,000 runs in flight, each in a node (memory)",
		contests: []contest{{
			contestants: []contestant{{
				name: "belay", settings: "go test ./lifecycle -run TestTenThousandInFlight -v",
				run: inFlight,
			}},
			targets: []target{
				{metric: "KB/run", most: 20},
				{metric: "% of a core", most: 5},
			},
		}},
	}
}

var inFlightLine = regexp.MustCompile(`a run in flight takes (\d+) bytes besides .* heartbeats take ([\d.]+) % of a core`)

func inFlight(ctx context.Context, _ *env) (figures, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "./lifecycle", "-run", "^TestTenThousandInFlight$", "-v", "-count=1")
	cmd.Dir = ".." // the main module
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return parseInFlight(string(out))
}

// parseInFlight reads what the test says.
func parseInFlight(out string) (figures, error) {
	found := inFlightLine.FindStringSubmatch(out)
	if found == nil {
		return nil, fmt.Errorf("the test does not say what a run in flight takes:\n%s", out)
	}
	bytes, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		return nil, err
	}
	share, err := strconv.ParseFloat(found[2], 64)
	return figures{"KB/run": bytes / 1024, "% of a core": share}, err
}
