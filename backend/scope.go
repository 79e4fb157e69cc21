package backend

import "github.com/belay-run/belay/claim"

// Owner is whose a run is. See claim.Owner.
type Owner = claim.Owner

// Tenantless is the owner of runs that belong to no tenant.
func Tenantless() Owner { return claim.Tenantless() }

// Tenant is the owner of one tenant's runs.
func Tenant(id string) Owner { return claim.Tenant(id) }

// Scope says whose runs an operation may see: everyone's (System) or one owner's
// (Of). The zero Scope is invalid and is never System. Scopes are comparable.
type Scope struct {
	system bool
	owner  Owner
}

// System sees every owner's runs.
func System() Scope { return Scope{system: true} }

// Of sees one owner's runs.
func Of(o Owner) Scope { return Scope{owner: o} }

// Owner is the scope's owner; ok is false for System.
func (s Scope) Owner() (o Owner, ok bool) { return s.owner, !s.system }

// Validate answers *ArgumentError for the zero scope and a bad owner.
func (s Scope) Validate() error {
	switch {
	case s.system:
		return nil
	case s.owner == Owner{}:
		return &ArgumentError{Argument: "scope", Reason: "is not set: use backend.System() or backend.Of(owner)"}
	}
	return s.owner.Validate()
}

// Sees reports whether a run of o is visible.
func (s Scope) Sees(o Owner) bool { return s.system || s.owner == o }
