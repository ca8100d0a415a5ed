//! The settings of a sandbox: its times, and which of Cluster API's two shapes its objects are held in.

use std::time::Duration;

/// The label of a Machine's template that says how its Machines turn out: see [`Behaviour`].
pub const BEHAVIOUR_LABEL: &str = "sandbox.capi-autoscaler-provider.io/machines";

/// Settings of a sandbox.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The shape of objects.
    pub contract: Contract,
    /// The durations of the steps.
    pub times: Times,
}

/// Cluster API's contract versions. Both are served; this is the shape in which the controllers write.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Contract {
    /// `cluster.x-k8s.io/v1beta1`
    V1Beta1,
    /// `cluster.x-k8s.io/v1beta2`
    #[default]
    V1Beta2,
}

impl Contract {
    /// As in `apiVersion`, with the group.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1Beta1 => "cluster.x-k8s.io/v1beta1",
            Self::V1Beta2 => "cluster.x-k8s.io/v1beta2",
        }
    }
}

/// The durations of the steps. Zero means at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Times {
    /// From a change of an object until its controller looks at it.
    pub react: Duration,
    /// From a Machine's creation until its bootstrap data is there (phase Pending).
    pub bootstrap: Duration,
    /// From then until its infrastructure is there, or has failed (phase Provisioning).
    pub provision: Duration,
    /// From then until its Node joins (phase Provisioned).
    pub join: Duration,
    /// From then until the Node is Ready.
    pub ready: Duration,
    /// From a Machine's deletion until its Node is drained.
    pub drain: Duration,
    /// From then until its infrastructure, its Node and itself are gone.
    pub terminate: Duration,
    /// The factor by which all of it takes longer for Machines that are [`Behaviour::Slow`].
    pub slow_factor: u32,
}

impl Times {
    /// Everything at once.
    pub const ZERO: Self = Self {
        react: Duration::ZERO,
        bootstrap: Duration::ZERO,
        provision: Duration::ZERO,
        join: Duration::ZERO,
        ready: Duration::ZERO,
        drain: Duration::ZERO,
        terminate: Duration::ZERO,
        slow_factor: 1,
    };
}

impl Default for Times {
    /// About as fast as a quick cloud.
    fn default() -> Self {
        Self {
            react: Duration::ZERO,
            bootstrap: Duration::from_secs(1),
            provision: Duration::from_secs(20),
            join: Duration::from_secs(20),
            ready: Duration::from_secs(10),
            drain: Duration::from_secs(5),
            terminate: Duration::from_secs(15),
            slow_factor: 10,
        }
    }
}

/// The behaviour of a Machine, by the label [`BEHAVIOUR_LABEL`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Behaviour {
    /// It becomes a Node. This is so without the label, and for any other value.
    #[default]
    Joins,
    /// `slow`: it becomes a Node, but everything takes longer.
    Slow,
    /// `never-join`: its infrastructure is there, its Node never comes.
    NeverJoins,
    /// `fail`: its infrastructure fails for good.
    Fails,
    /// `no-capacity`: its infrastructure provider finds no capacity, and goes on trying.
    NoCapacity,
}

impl Behaviour {
    /// The behaviour that the label's value names.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            Some("slow") => Self::Slow,
            Some("never-join") => Self::NeverJoins,
            Some("fail") => Self::Fails,
            Some("no-capacity") => Self::NoCapacity,
            Some(_) | None => Self::Joins,
        }
    }
}
