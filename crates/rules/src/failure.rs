//! What infrastructure reports of a Machine or MachinePool that isn't ready: whether it has failed for good, and whether
//! capacity or quota lacks. Every part of the program must decide this here.
//!
//! Detects that a cloud has run out of capacity, or an account out of quota, from the reason and message of a Machine's
//! failed or unready infrastructure. Cluster Autoscaler's class for it is InstanceErrorClass 1
//! (kubernetes/autoscaler#5417).
//!
//! Cluster Autoscaler deletes a Machine with such an error and backs its node group off. Ordinary provisioning messages
//! must therefore never match. A lack of capacity that may resolve itself becomes an error only after a grace period:
//! see [`Grace`].

use std::{collections::BTreeMap, str::FromStr, sync::Arc};

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};

use crate::{
    GoDuration, Problem, ProblemKind,
    capi::{CAPACITY_ERROR_GRACE, Condition, Machine, MachinePhase, ScalableKind, ScalableResource},
    duration::DurationError,
};

/// Cluster API's reason of InfrastructureReady if a Machine's infrastructure was deleted.
const INFRASTRUCTURE_DELETED: &str = "Deleted";

/// A reason by which an infrastructure provider says that a Machine will never be ready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terminal {
    /// The provider.
    pub provider: &'static str,
    /// The reason, or words of the message of a provider whose reason doesn't reach the Machine.
    pub text: &'static str,
    /// The file of the provider's sources that shows it.
    pub source: &'static str,
}

/// The one list of these reasons; `docs/reference/failures.md` shows it. After each of them its provider does nothing
/// more for the Machine. Providers of bare metal have none: theirs come and go while a host is being prepared.
pub const TERMINAL: [Terminal; 8] = [
    terminal("AWS", "InstanceTerminated", "controllers/awsmachine_controller.go"),
    terminal("Hetzner", "ServerCreateFailedIrrecoverableError", "pkg/services/hcloud/server/server.go"),
    terminal("Hetzner", "CreationFailedIrrecoverably", "pkg/services/hcloud/server/server.go"),
    terminal("Hetzner", "failed with an irrecoverable error", "pkg/services/hcloud/server/server.go"),
    terminal("IBM Cloud", "InstanceErrored", "internal/controllers/powervs/ibmpowervsmachine_controller.go"),
    terminal("OpenStack", "InstanceDeleted", "controllers/openstackmachine_controller.go"),
    terminal("OpenStack", "Instance is in ERROR state", "controllers/openstackmachine_controller.go"),
    terminal("Proxmox", "VMProvisionFailed", "internal/controller/proxmoxmachine_controller.go"),
];

const fn terminal(provider: &'static str, text: &'static str, source: &'static str) -> Terminal {
    Terminal { provider, text, source }
}

/// Returns true if a Machine has failed for good. Up to Cluster API 1.10 it then has the phase Failed and a failure's
/// reason or message; these texts alone don't count, since bare metal sets them during provisioning. Cluster API 1.11
/// and later don't set the phase, so the condition InfrastructureReady counts: the infrastructure is gone, or its
/// provider gives a reason of [`TERMINAL`].
pub fn has_failed(machine: &Machine) -> bool {
    let infrastructure = machine.infrastructure_not_ready().filter(|_| !machine.deleting);
    let is_gone = infrastructure.is_some_and(|condition| condition.reason == INFRASTRUCTURE_DELETED);
    // A pool replaces its instances by itself.
    let is_of_pool = machine.owner.as_ref().is_some_and(|(kind, _)| *kind == ScalableKind::MachinePool);
    let is_terminal = || !is_of_pool && infrastructure.is_some_and(is_terminal);
    (machine.phase == MachinePhase::Failed && machine.failure().is_some()) || is_gone || is_terminal()
}

/// Returns true if a MachinePool has failed for good: its infrastructure isn't ready, and it has a failure's reason or
/// message, or gives a reason of [`TERMINAL`]. Cluster API up to 1.10 makes the phase Failed of a failure alone, but never
/// clears it, whatever becomes of the infrastructure. Bare metal, which sets such texts while a host is being prepared, has
/// no pools. The reason `Deleted` doesn't count: Cluster API doesn't set it on pools, and Azure's conditions have it for
/// parts that a pool has no more.
pub fn pool_has_failed(pool: &ScalableResource) -> bool {
    let infrastructure = pool.infrastructure_not_ready.as_ref();
    infrastructure.is_some_and(|condition| pool.failure.is_some() || is_terminal(condition))
}

fn is_terminal(condition: &Condition) -> bool {
    let has = |text| has_words(&condition.reason, text, false) || has_words(&condition.message, text, false);
    TERMINAL.iter().any(|terminal| has(terminal.text))
}

// A lack of capacity or quota.

/// The failureReason that Cluster API defines for a lack of resources, for all providers.
pub(crate) const INSUFFICIENT_RESOURCES: &str = "InsufficientResources";

/// A text by which an infrastructure provider reports that it can't create a machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cause {
    /// The provider.
    pub provider: &'static str,
    /// The text.
    pub text: &'static str,
    /// The form in which it is matched.
    pub form: Form,
    /// True if waiting may resolve it.
    pub heals: bool,
    /// A public place that shows the text: a file of the provider, or of another repository that is named before a
    /// colon, an issue, or the cloud's own list.
    pub source: &'static str,
}

/// The form in which a text is matched. A word consists of letters, digits and `_`, so that `LimitExceeded` doesn't
/// match AWS's `RequestLimitExceeded`, which is throttling.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// Whole words, case-sensitive.
    Code,
    /// Whole words, case-insensitive.
    Phrase,
}

const fn code(provider: &'static str, text: &'static str, heals: bool, source: &'static str) -> Cause {
    Cause { provider, text, form: Form::Code, heals, source }
}

const fn phrase(provider: &'static str, text: &'static str, heals: bool, source: &'static str) -> Cause {
    Cause { provider, text, form: Form::Phrase, heals, source }
}

/// A quota, a machine type that isn't offered, or a Machine that its provider never tries again: the lack lasts until
/// somebody changes the quota or the template, or deletes the Machine.
const LASTS: bool = false;
/// A lack of capacity, which ends when other users release some.
const HEALS: bool = true;

const CAPI: &str = "kubernetes-sigs/cluster-api: errors/machines.go";
const EC2: &str = "docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html";
const ARM: &str = "Azure/azure-sdk-for-go-extensions: pkg/errors/consts.go";
const GCE: &str = "kubernetes/autoscaler: cluster-autoscaler/cloudprovider/gce/autoscaling_gce_client.go";
const HCLOUD: &str = "hetznercloud/hcloud-go: hcloud/error.go";
const SCHEDULER: &str = "kubernetes/kubernetes: pkg/scheduler/framework/plugins/noderesources/fit.go";
const OCI: &str =
    "kubernetes/autoscaler: cluster-autoscaler/cloudprovider/oci/instancepools/oci_instance_pool_cache.go";
const NOVA: &str = "openstack/nova: nova/exception.py";
const NEUTRON: &str = "openstack/neutron-lib: neutron_lib/exceptions/__init__.py";
const GOVMOMI: &str = "vmware/govmomi: vim25/types/types.go";

/// The one list of these texts; `docs/reference/failures.md` shows it.
pub const CAUSES: [Cause; 51] = [
    code("Cluster API", INSUFFICIENT_RESOURCES, HEALS, CAPI),
    code("AWS", "InsufficientInstanceCapacity", HEALS, EC2),
    code("AWS", "InsufficientHostCapacity", HEALS, EC2),
    code("AWS", "InsufficientReservedInstanceCapacity", HEALS, EC2),
    code("AWS", "InsufficientCapacityOnHost", HEALS, EC2),
    code("AWS", "InsufficientFreeAddressesInSubnet", HEALS, EC2),
    phrase("AWS", "insufficient capacity", HEALS, "aws/aws-sdk-js-v3#5340"),
    phrase("AWS", "not enough capacity", HEALS, EC2),
    code("AWS", "InstanceLimitExceeded", LASTS, EC2),
    code("AWS", "MaxSpotInstanceCountExceeded", LASTS, EC2),
    code("AWS", "VcpuLimitExceeded", LASTS, EC2),
    code("AWS", "VolumeLimitExceeded", LASTS, EC2),
    phrase(
        "AWS",
        "is not supported in your requested availability zone",
        LASTS,
        "kubernetes-sigs/cluster-api-provider-aws#2106",
    ),
    code("Azure", "AllocationFailed", HEALS, ARM),
    code("Azure", "OverconstrainedAllocationRequest", HEALS, ARM),
    code("Azure", "OverconstrainedZonalAllocationRequest", HEALS, ARM),
    code("Azure", "ZonalAllocationFailed", HEALS, ARM),
    code("Azure", "QuotaExceeded", LASTS, "Azure/aks-engine#847"),
    code("Azure", "SkuNotAvailable", LASTS, ARM),
    phrase("Azure", "exceeding approved", LASTS, ARM),
    code("GCP", "RESOURCE_POOL_EXHAUSTED", HEALS, GCE),
    code("GCP", "ZONE_RESOURCE_POOL_EXHAUSTED", HEALS, GCE),
    code("GCP", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", HEALS, GCE),
    phrase(
        "GCP",
        "does not have enough resources available",
        HEALS,
        "GoogleCloudPlatform/PerfKitBenchmarker: perfkitbenchmarker/providers/gcp/gce_virtual_machine.py",
    ),
    code("GCP", "QUOTA_EXCEEDED", LASTS, GCE),
    code("GCP", "quotaExceeded", LASTS, "cloudfoundry/bosh-google-cpi-release#168"),
    phrase("GCP", "machine type with name", LASTS, "ubicloud/ubicloud: spec/prog/vm/gcp/nexus_spec.rb"),
    code("Hetzner", "NoAvailableHost", HEALS, "api/v1beta1/conditions_const.go"),
    phrase("Hetzner", "no available host", HEALS, "pkg/services/baremetal/baremetal/baremetal.go"),
    code("Hetzner", "resource_unavailable", HEALS, HCLOUD),
    code("Hetzner", "resource_limit_exceeded", LASTS, HCLOUD),
    phrase("Hetzner", "unsupported location for server type", LASTS, "pkg/services/hcloud/server/server.go"),
    code(
        "IBM Cloud",
        "reservation_capacity_unavailable",
        LASTS,
        "cloud.ibm.com/docs/vpc?topic=vpc-virtual-server-health-status-reasons",
    ),
    code("KubeVirt", "Unschedulable", HEALS, "pkg/kubevirt/machine.go"),
    phrase("KubeVirt", "insufficient cpu", HEALS, SCHEDULER),
    phrase("KubeVirt", "insufficient memory", HEALS, SCHEDULER),
    phrase("Metal3", "no available host found", HEALS, "baremetal/metal3machine_manager.go"),
    code("OCI", "OutOfCapacity", HEALS, OCI),
    phrase("OCI", "out of host capacity", HEALS, "cloud/ociutil/ociutil.go"),
    code("OCI", "LimitExceeded", LASTS, OCI),
    code("OpenStack", "NoValidHost", HEALS, NOVA),
    phrase("OpenStack", "no valid host was found", HEALS, NOVA),
    phrase("OpenStack", "no more IP addresses available", HEALS, NEUTRON),
    code("OpenStack", "OverQuota", LASTS, NEUTRON),
    phrase("OpenStack", "quota exceeded", LASTS, NEUTRON),
    phrase("Proxmox", "available memory left", LASTS, "internal/service/scheduler/vmscheduler.go"),
    phrase("Proxmox", "no free vmid found", LASTS, "internal/service/vmservice/vm.go"),
    phrase("vSphere", "insufficient disk space", HEALS, "ansible-collections/vmware.vmware_rest#299"),
    code("vSphere", "InsufficientResourcesFault", HEALS, GOVMOMI),
    phrase("vSphere", "insufficient resources", HEALS, GOVMOMI),
    phrase(
        "vSphere",
        "parent resource pool are insufficient",
        HEALS,
        "cloudfoundry/bosh-vsphere-cpi-release: src/vsphere_cpi/spec/integration/multi_cluster_overflow_spec.rb",
    ),
];

/// A lack of capacity or quota.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Lack {
    /// Waiting may resolve it.
    Heals,
    /// Somebody has to change a quota or a template.
    Lasts,
}

/// The maximum number of an operator's texts, each of which is looked for in each condition.
const MOST_WORDS: usize = 64;

/// The operator's further texts of a lack of capacity that waiting may resolve, found as whole words in any case.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CapacityWords(Arc<[String]>);

/// The error for texts that can't be looked for.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CapacityWordsError {
    /// A text has no letter or digit, so it could be found anywhere.
    #[error("{0:?} has no letter or digit")]
    Empty(String),
    /// There are too many texts.
    #[error("there are more than {MOST_WORDS} texts")]
    TooMany,
}

impl CapacityWords {
    /// Creates them from texts.
    ///
    /// # Errors
    /// If a text has no word, or there are too many.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, CapacityWordsError> {
        let words: Vec<_> = texts.into_iter().map(|text| text.trim().to_owned()).collect();
        if let Some(empty) = words.iter().find(|text| !text.contains(char::is_alphanumeric)) {
            return Err(CapacityWordsError::Empty(empty.clone()));
        }
        if words.len() > MOST_WORDS { Err(CapacityWordsError::TooMany) } else { Ok(Self(words.into())) }
    }

    /// Returns the lack that a reason or message reports, by these texts and the known ones.
    pub(crate) fn lack(&self, text: &str) -> Option<Lack> {
        let own = || self.0.iter().any(|words| has_words(text, words, true)) && !is_throttled(text);
        lack(text).or_else(|| own().then_some(Lack::Heals))
    }
}

/// Phrases of throttled API calls. A message with such a phrase never counts as a lack of capacity, whatever else it
/// contains, because GCP calls both a quota.
const THROTTLING: [&str; 6] =
    ["ratelimitexceeded", "rate limit", "per minute", "per second", "throttling", "too many requests"];

/// Returns the lack that a reason or message reports; `None` if it reports none. `Lasts` wins if it reports both.
pub fn lack(text: &str) -> Option<Lack> {
    let found = CAUSES.iter().filter(|cause| has_words(text, cause.text, cause.form == Form::Phrase));
    let lack = found.map(|cause| if cause.heals { Lack::Heals } else { Lack::Lasts }).max()?;
    (!is_throttled(text)).then_some(lack)
}

fn is_throttled(text: &str) -> bool {
    THROTTLING.iter().any(|phrase| has_words(text, phrase, true))
}

/// Returns true if `text` contains `words` at word boundaries.
fn has_words(text: &str, words: &str, any_case: bool) -> bool {
    let is_word = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_';
    let (text, words) = (text.as_bytes(), words.as_bytes());
    text.windows(words.len()).enumerate().any(|(start, window)| {
        let same = if any_case { window.eq_ignore_ascii_case(words) } else { window == words };
        same && !start.checked_sub(1).and_then(|before| text.get(before)).is_some_and(is_word)
            && !text.get(start + words.len()).is_some_and(is_word)
    })
}

// The grace period before a temporary lack of capacity becomes an error. On bare metal, a host may soon become
// available although the Machine reports that there is none.

const NEVER: &str = "never";
const DEFAULT: GoDuration = GoDuration::from_nanos(5 * 60 * 1_000_000_000);

/// The time after which a lack of capacity is an error.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Grace {
    /// After this time, which isn't negative; 0 means at once.
    For(GoDuration),
    /// Never.
    Never,
}

/// The error for a text that isn't a grace period.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GraceError {
    /// The text is neither a duration nor `never`.
    #[error("{0}, or {NEVER}")]
    Duration(#[from] DurationError),
    /// The duration is negative.
    #[error("it has to be 0 or longer, or {NEVER}")]
    Negative,
}

impl Default for Grace {
    fn default() -> Self {
        Self::For(DEFAULT)
    }
}

impl Grace {
    /// Returns the grace period in a group's annotation, or `default` if the group has no such annotation.
    ///
    /// # Errors
    /// If the annotation is invalid.
    pub fn of_group(annotations: &BTreeMap<ArcStr, ArcStr>, default: Self) -> Result<Self, Problem> {
        let Some(text) = annotations.get(CAPACITY_ERROR_GRACE).map(|text| text.trim()).filter(|text| !text.is_empty())
        else {
            return Ok(default);
        };
        text.parse().map_err(|error: GraceError| {
            let rule = format!("{error}; it is ignored");
            Problem::annotation(ProblemKind::Options, CAPACITY_ERROR_GRACE, text, &rule)
        })
    }

    /// Returns true if a lack of capacity that began at `since` is an error at `now`.
    pub fn is_over(self, since: Timestamp, now: Timestamp) -> bool {
        match self {
            Self::For(grace) => now.duration_since(since) >= SignedDuration::from_nanos(grace.as_nanos()),
            Self::Never => false,
        }
    }
}

impl FromStr for Grace {
    type Err = GraceError;

    fn from_str(text: &str) -> Result<Self, GraceError> {
        if text.eq_ignore_ascii_case(NEVER) {
            return Ok(Self::Never);
        }
        let grace: GoDuration = text.parse()?;
        if grace.as_nanos() < 0 { Err(GraceError::Negative) } else { Ok(Self::For(grace)) }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::aws(
        "InstanceProvisionFailed: failed to run instance: InsufficientInstanceCapacity: We currently do not have sufficient m5.large capacity"
    )]
    #[case::aws_subnet("InsufficientFreeAddressesInSubnet: There are not enough free addresses in subnet subnet-1")]
    #[case::azure_zone("{\"code\":\"ZonalAllocationFailed\"}")]
    #[case::gcp("error: ZONE_RESOURCE_POOL_EXHAUSTED")]
    #[case::gcp_in_words(
        "The zone 'projects/p/zones/z' does not have enough resources available to fulfill the request"
    )]
    #[case::openstack("No valid host was found. There are not enough hosts available.")]
    #[case::hetzner("failed to create server: error during placement (resource_unavailable)")]
    #[case::oci("Out of host capacity.")]
    #[case::vsphere("Insufficient resources to satisfy configured failover level")]
    #[case::openstack_addresses("creating ports: No more IP addresses available on network 7c2b.")]
    #[case::hetzner_bare_metal("* HostAssociated: no available host (2 hosts don't match the selector)")]
    #[case::kubevirt("Unschedulable")]
    #[case::kubevirt_in_words("* VMProvisioned: 0/3 nodes are available: 3 Insufficient memory.")]
    #[case::vsphere_disk("Insufficient disk space on datastore 'ds1'.")]
    #[case::bare_metal("No available host found. Requeuing.")]
    #[case::cluster_api("InsufficientResources")]
    fn capacity_may_come_back(#[case] text: &str) {
        assert_eq!(lack(text), Some(Lack::Heals));
    }

    #[rstest]
    #[case::aws_vcpu("VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit of 32")]
    #[case::aws_spot("MaxSpotInstanceCountExceeded: Max spot instance count exceeded")]
    #[case::aws_type(
        "Unsupported: Your requested instance type (m9.large) is not supported in your requested Availability Zone (eu-1a)."
    )]
    #[case::azure("failed to reconcile AzureMachine: ERROR CODE: SkuNotAvailable")]
    #[case::azure_quota("OperationNotAllowed: results in exceeding approved Total Regional Cores quota")]
    #[case::gcp_quota("QUOTA_EXCEEDED: Quota 'CPUS' exceeded. Limit: 24.0 in region europe-west1")]
    #[case::gcp_quota_by_rest(
        "googleapi: Error 403: Quota 'CPUS' exceeded. Limit: 24.0 in region us-central1., quotaExceeded"
    )]
    #[case::gcp_type("Machine type with name 'n9-standard-4' does not exist in zone 'europe-west1-b'.")]
    #[case::openstack_quota("Quota exceeded for cores: Requested 8, but already used 36 of 40 cores")]
    #[case::hetzner_limit("server limit reached (resource_limit_exceeded)")]
    #[case::hetzner_type("unsupported location for server type (invalid_input)")]
    #[case::oci_limit("Error returned: LimitExceeded. The following service limits were exceeded")]
    #[case::proxmox(
        "* VirtualMachineProvisioned: cannot reserve 17179869184B of memory on node host-1: 11246551040B available memory left"
    )]
    #[case::proxmox_ids("No free vmid found in vmIDRange")]
    #[case::ibm_reservation(
        "InstanceErrored: reservation_capacity_unavailable: The reservation affinity pool has no available capacity."
    )]
    #[case::the_lasting_one_of_two("no available host found; QuotaExceeded")]
    fn a_quota_and_what_is_not_offered_last(#[case] text: &str) {
        assert_eq!(lack(text), Some(Lack::Lasts));
    }

    #[rstest]
    #[case::own_words("rack 7 has no blade LEFT for it", Some(Lack::Heals))]
    #[case::part_of_a_word("no bladed left", None)]
    #[case::a_known_text("QuotaExceeded: no blade left", Some(Lack::Lasts))]
    #[case::throttling("no blade left: too many requests", None)]
    #[case::other("no cable left", None)]
    fn an_operator_adds_words(#[case] text: &str, #[case] expected: Option<Lack>) {
        let words = CapacityWords::new([" no blade left ", "E_RACK_FULL"]).unwrap();
        assert_eq!(words.lack(text), expected);
    }

    #[test]
    fn words_that_could_be_anywhere_are_refused() {
        assert_eq!(CapacityWords::new(["a", " - "]), Err(CapacityWordsError::Empty("-".to_owned())));
        assert_eq!(CapacityWords::new(["a"; MOST_WORDS + 1]), Err(CapacityWordsError::TooMany));
    }

    #[rstest]
    #[case::empty("")]
    #[case::waiting("WaitingForInfrastructure")]
    #[case::in_memory("* VMProvisioned: WaitingForStartupTimeout\n* NodeProvisioned: WaitingForVMProvisioned")]
    #[case::provisioning("InstanceNotReady: instance is pending, has 4 CPUs and enough capacity")]
    #[case::bootstrap("WaitingForBootstrapData")]
    #[case::unauthorized("UnauthorizedOperation: you are not authorized to perform this operation")]
    #[case::aws_throttling("RequestLimitExceeded: Request limit exceeded.")]
    #[case::gcp_throttling(
        "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute', rateLimitExceeded"
    )]
    #[case::a_longer_word("ReservedQuotaExceededWarning")]
    #[case::another_case_of_a_code("quotaexceeded")]
    #[case::a_host_that_is_being_prepared("* HostReady: the host is provisioning, 11246551040B of memory available")]
    #[case::a_quota_that_is_fine("checking quota: 3 of 40 cores used")]
    fn ordinary_messages_are_not(#[case] text: &str) {
        assert_eq!(lack(text), None);
    }

    const SECOND: i64 = 1_000_000_000;
    const NO_DURATION: &str = "it has to be numbers with the units h, m, s, ms, us or ns, such as 10m, 1h30m or 90s, of at \
                               most 292 years, or never";

    #[rstest]
    #[case("5m", Ok(Grace::default()))]
    #[case("0", Ok(Grace::For(GoDuration::from_nanos(0))))]
    #[case("90s", Ok(Grace::For(GoDuration::from_nanos(90 * SECOND))))]
    #[case("never", Ok(Grace::Never))]
    #[case("Never", Ok(Grace::Never))]
    #[case("-1s", Err("it has to be 0 or longer, or never"))]
    #[case("5", Err(NO_DURATION))]
    #[case("", Err(NO_DURATION))]
    fn a_grace_period_is_a_duration_or_never(#[case] text: &str, #[case] expected: Result<Grace, &str>) {
        assert_eq!(text.parse::<Grace>().map_err(|error| error.to_string()), expected.map_err(str::to_owned));
    }

    #[rstest]
    #[case::before_its_end("5m", 299, false)]
    #[case::at_its_end("5m", 300, true)]
    #[case::at_once("0", 0, true)]
    #[case::a_time_to_come("0", -10, false)]
    #[case::never("never", i64::from(u32::MAX), false)]
    fn it_is_over(#[case] grace: Grace, #[case] seconds: i64, #[case] expected: bool) {
        let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(grace.is_over(since, since + SignedDuration::from_secs(seconds)), expected);
    }

    #[rstest]
    #[case::none(None, Ok(Grace::Never))]
    #[case::empty(Some(" "), Ok(Grace::Never))]
    #[case::its_own(Some(" 5m "), Ok(Grace::default()))]
    #[case::wrong(
        Some("soon"),
        Err(
            "annotation capi-autoscaler-provider.io/capacity-error-grace is \"soon\": it has to be numbers with the units \
         h, m, s, ms, us or ns, such as 10m, 1h30m or 90s, of at most 292 years, or never; it is ignored"
        )
    )]
    fn an_annotation_wins_over_the_operators(#[case] text: Option<&str>, #[case] expected: Result<Grace, &str>) {
        let annotations = text.map(|text| (CAPACITY_ERROR_GRACE.into(), text.into())).into_iter().collect();
        let found = Grace::of_group(&annotations, Grace::Never).map_err(|problem| problem.message);
        assert_eq!(found, expected.map_err(str::to_owned));
    }
}
