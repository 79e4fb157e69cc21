package pgtest

import (
	"errors"
	"os/exec"
)

var errNoCluster = errors.New("a throwaway cluster needs a Unix")

func join() (string, error) { return "", errNoCluster }

func watch(*Cluster, string, bool) error { return errNoCluster }

func (account) apply(*exec.Cmd) {}

func (c *Cluster) gone([]int) error { return errNoCluster }
