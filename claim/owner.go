package claim

// Owner is whose a run is: nobody's in particular (Tenantless) or one tenant's.
// The zero Owner is invalid, so that a forgotten owner is an error. Owners are
// comparable.
type Owner struct {
	tenant string
	kind   ownerKind
}

type ownerKind uint8

const (
	noOwner ownerKind = iota
	tenantless
	oneTenant
)

// Tenantless is the owner of runs that belong to no tenant.
func Tenantless() Owner { return Owner{kind: tenantless} }

// Tenant is the owner of one tenant's runs. An empty or oversized id makes an
// owner that every operation refuses; it is never Tenantless.
func Tenant(id string) Owner { return Owner{tenant: id, kind: oneTenant} }

// Tenant is the tenant's id; ok is false for Tenantless (and for the zero Owner).
func (o Owner) Tenant() (id string, ok bool) { return o.tenant, o.kind == oneTenant }

// Validate answers *ArgumentError for the zero Owner and for a bad tenant id.
func (o Owner) Validate() error {
	switch o.kind {
	case tenantless:
		return nil
	case oneTenant:
		return CheckID("tenant", o.tenant)
	}
	return &ArgumentError{"owner", "is missing: use Tenantless or Tenant"}
}

// String is "tenantless" or the tenant's id, for logs and messages.
func (o Owner) String() string {
	switch o.kind {
	case tenantless:
		return "tenantless"
	case oneTenant:
		return o.tenant
	}
	return "no owner"
}
