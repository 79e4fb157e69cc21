package lifecycle

import (
	"flag"
	"testing"
)

var (
	simSeeds = flag.Int("sim.seeds", 100, "how many fleets are simulated")
	simSeed  = flag.Uint64("sim.seed", 0, "simulate this one, and print its story")
)

// simFaults are what an engine might do wrong. They are planted in what it is built on, or in its parts.
var simFaults = []string{
	"refreshes that reach nobody", "late heartbeat", "double launch", "lost wake", "lost poll",
	"a lost claim that ends nobody", "a commit after the shutdown", "a refund that is forgotten at the shutdown",
	"a claim that is kept at the shutdown", "a shutdown timeout that is ignored", "a stale graph cache",
	"a commit budget that is ignored", "a retry that is parked without a release",
	"a claim that is given up without a refund",
	"a signal that is dropped while the run is busy", "too many runs at once",
}

func TestFleetsFinishTheirRunsWhateverGoesWrong(t *testing.T) {
	if *simSeed != 0 {
		story, broken := simulate(t, *simSeed, "")
		t.Logf("%s\n%q", story, broken)
		if len(broken) > 0 {
			t.Fail()
		}
		return
	}
	for seed := uint64(1); seed <= uint64(*simSeeds); seed++ {
		if _, broken := simulate(t, seed, ""); len(broken) > 0 {
			t.Errorf("seed %d: %q\nsee its story: go test ./lifecycle -run %s -sim.seed %d -v", seed, broken, t.Name(), seed)
		}
	}
}

func TestOneSeedTwiceGivesTheSameStory(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		first, _ := simulate(t, seed, "")
		if second, _ := simulate(t, seed, ""); first != second {
			i := 0
			for i < min(len(first), len(second)) && first[i] == second[i] {
				i++
			}
			t.Fatalf("seed %d differs after %d bytes:\n%s\n---\n%s", seed, i, first[max(0, i-600):min(len(first), i+200)], second[max(0, i-200):min(len(second), i+200)])
		}
	}
}

// What the fleet cannot survive is found.
func TestPlantedFaultsAreFound(t *testing.T) {
	for _, fault := range simFaults {
		found := uint64(0)
		for seed := uint64(1); seed <= 100 && found == 0; seed++ {
			if _, broken := simulate(t, seed, fault); len(broken) > 0 {
				found = seed
				t.Logf("%s: seed %d: %q", fault, seed, broken)
			}
		}
		if found == 0 {
			t.Errorf("%s: not found in 100 seeds", fault)
		}
	}
}
