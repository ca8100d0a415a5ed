//! Machine: its owner, its Node and its failure. A fleet has a hundred thousand Machines, so rare parts are boxed and
//! repeated text is shared.

use arcstr::ArcStr;
use std::{num::NonZeroU32, sync::Arc};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use shared_informer::{Document, Projection};

use super::{Context, Meta, ScalableKind, wire};

/// A Machine as read here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Machine {
    /// Identity.
    pub meta: Meta,
    /// The kind and name of the MachineSet or MachinePool that owns it, in the Machine's namespace. `None` for
    /// Machines of a control plane and for those without an owner.
    pub owner: Option<(ScalableKind, ArcStr)>,
    /// `spec.clusterName`, else the label `cluster.x-k8s.io/cluster-name`, else empty.
    pub cluster_name: ArcStr,
    /// `spec.providerID`, if it isn't empty.
    pub provider_id: Option<ArcStr>,
    /// `status.nodeRef.name`, if it isn't empty.
    pub node_name: Option<ArcStr>,
    /// `status.phase`.
    pub phase: MachinePhase,
    /// `metadata.creationTimestamp`.
    pub created: Created,
    /// The parts that few Machines have; `None` if it has none of them.
    pub rare: Option<Box<Rare>>,
    /// True if `metadata.deletionTimestamp` is set.
    pub deleting: bool,
}

/// The parts of a Machine that few have, in one allocation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rare {
    /// The failure's reason and message, from the field of either contract version. They alone don't mean that the
    /// Machine has failed.
    pub failure: Option<Failure>,
    /// The condition InfrastructureReady when its status is False; that alone is normal while provisioning.
    pub infrastructure_not_ready: Option<Condition>,
    /// The value of the annotation delete-machine, which others may set as well.
    pub delete_mark: Option<ArcStr>,
}

impl Rare {
    /// Returns it in its allocation, or `None` if it has no part.
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// The creation time of an object in seconds, small enough for the padding of a Machine.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Created(Option<NonZeroU32>);

impl Created {
    /// Creates a value from a time; a time before 1970 or after 2106 counts as unknown.
    pub fn at(time: Option<Timestamp>) -> Self {
        Self(time.and_then(|time| NonZeroU32::new(time.as_second().try_into().ok()?)))
    }

    /// Returns the time, or `None` if it is unknown.
    pub fn time(self) -> Option<Timestamp> {
        Timestamp::from_second(self.0?.get().into()).ok()
    }
}

/// The phases of a Machine that rules read.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum MachinePhase {
    /// It is being deleted.
    Deleting,
    /// Terminally failed; not set any more since Cluster API 1.11.
    Failed,
    /// Any other text, or none.
    #[default]
    Other,
}

impl MachinePhase {
    fn parse(text: &str) -> Self {
        match text {
            "Deleting" => Self::Deleting,
            "Failed" => Self::Failed,
            _ => Self::Other,
        }
    }
}

/// `failureReason` and `failureMessage`; at least one of them isn't empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Failure {
    /// The reason for programs, for example `InsufficientResources`.
    pub reason: Option<ArcStr>,
    /// For people.
    pub message: Option<ArcStr>,
}

impl Failure {
    /// Returns the first texts that aren't empty, if there is one.
    pub(super) fn of(reasons: &[Option<&wire::Text<'_>>], messages: &[Option<&wire::Text<'_>>]) -> Option<Self> {
        let text = |places: &[Option<&wire::Text<'_>>]| {
            places.iter().flatten().find(|text| !text.is_empty()).map(|text| ArcStr::from(wire::message(text)))
        };
        let (reason, message) = (text(reasons), text(messages));
        (reason.is_some() || message.is_some()).then_some(Self { reason, message })
    }
}

/// Reason and message of a condition, and the time of its last transition.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Condition {
    /// The reason for programs, in CamelCase.
    pub reason: ArcStr,
    /// For people.
    pub message: ArcStr,
    /// `lastTransitionTime`, if it can be parsed.
    pub since: Option<Timestamp>,
}

/// The condition that quotes the infrastructure of a Machine or MachinePool.
pub(super) const INFRASTRUCTURE_READY: &str = "InfrastructureReady";

impl Condition {
    /// Returns a condition whose status is False.
    pub(super) fn if_false(condition: &wire::Condition<'_>, context: &Context) -> Option<Self> {
        (condition.status == "False").then(|| Self {
            reason: context.interner.intern(wire::message(&condition.reason)),
            message: context.interner.intern(wire::message(&condition.message)),
            since: condition.since(),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    /// Of any type: a Machine counts even if its Cluster can't be read.
    #[serde(borrow)]
    cluster_name: Option<wire::Amount<'a>>,
    #[serde(rename = "providerID")]
    provider_id: Option<wire::Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow, default)]
    phase: wire::Text<'a>,
    node_ref: Option<wire::NodeRef<'a>>,
    conditions: Option<Vec<wire::Condition<'a>>>,
    /// The v1beta2 fields of a v1beta1 object, since Cluster API 1.9.
    v1beta2: Option<wire::V1Beta2<'a>>,
    failure_reason: Option<wire::Text<'a>>,
    failure_message: Option<wire::Text<'a>>,
    /// OpenShift's name for failureReason.
    error_reason: Option<wire::Text<'a>>,
    /// OpenShift's name for failureMessage.
    error_message: Option<wire::Text<'a>>,
    deprecated: Option<Deprecated<'a>>,
}

/// Without the conditions there, which a MachinePool needs: reading them costs allocations for each Machine.
#[derive(Deserialize)]
struct Deprecated<'a> {
    #[serde(borrow)]
    v1beta1: Option<DeprecatedV1Beta1<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeprecatedV1Beta1<'a> {
    #[serde(borrow)]
    failure_reason: Option<wire::Text<'a>>,
    failure_message: Option<wire::Text<'a>>,
}

/// The JSON of a Machine.
struct Json;

impl Document for Json {
    type Json<'a> = wire::Object<'a, Spec<'a>, Status<'a>>;
}

impl Machine {
    /// Returns the failure's reason and message. They alone don't mean that the Machine has failed.
    pub fn failure(&self) -> Option<&Failure> {
        self.rare.as_ref()?.failure.as_ref()
    }

    /// Returns the condition InfrastructureReady when its status is False.
    pub fn infrastructure_not_ready(&self) -> Option<&Condition> {
        self.rare.as_ref()?.infrastructure_not_ready.as_ref()
    }

    /// Returns the value of the annotation delete-machine.
    pub fn delete_mark(&self) -> Option<&ArcStr> {
        self.rare.as_ref()?.delete_mark.as_ref()
    }

    /// Decodes a Machine of either contract version.
    ///
    /// # Errors
    /// The text of the decoding error, when a field that is read has another type.
    pub fn decode(meta: Meta, value: &Value, context: &Context) -> Result<Self, String> {
        wire::read(value).map(|json| Self::of(meta, json, context))
    }

    /// Returns the projection with which an informer reads Machines.
    pub fn projection(context: &Arc<Context>) -> Projection<Self> {
        let of_error = Context::salvage(context);
        let context = Arc::clone(context);
        Projection::typed::<Json>("capi/Machine", move |meta, json| Ok(Self::of(meta, json, &context)))
            .with_identity_within(|machine| &machine.meta)
            .with_bytes(Self::bytes)
            .with_salvage(of_error)
    }

    /// Returns the bytes of its texts and rare parts, without its identity.
    pub(super) fn bytes(&self) -> usize {
        let owner = self.owner.iter().map(|(_, name)| name);
        let named = [&self.provider_id, &self.node_name].into_iter().flatten().chain(self.delete_mark());
        let failure = self.failure().into_iter().flat_map(|failure| [&failure.reason, &failure.message]).flatten();
        let condition = self.infrastructure_not_ready().into_iter().flat_map(|it| [&it.reason, &it.message]);
        let texts = owner.chain([&self.cluster_name]).chain(named).chain(failure).chain(condition);
        wire::bytes(texts) + self.rare.as_ref().map_or(0, |_| size_of::<Rare>())
    }

    fn of(meta: Meta, object: wire::Object<'_, Spec<'_>, Status<'_>>, context: &Context) -> Self {
        let interner = &context.interner;
        let owner = object
            .metadata
            .owner(&context.keys, &["MachineSet", "MachinePool"])
            .and_then(|(kind, name)| Some((ScalableKind::parse(kind)?, interner.intern(&wire::value(name)))));
        let of_spec = match object.spec.as_ref().and_then(|spec| spec.cluster_name.as_ref()) {
            Some(wire::Amount::Text(name)) if !name.is_empty() => Some(&**name),
            Some(wire::Amount::Text(_) | wire::Amount::Other(_)) | None => None,
        };
        let cluster_name = of_spec.or_else(|| object.metadata.label(&context.keys.cluster_name)).unwrap_or_default();
        let cluster_name = interner.intern(&wire::value(cluster_name));
        let status = object.status;
        let failure = status.as_ref().and_then(failure);
        let infrastructure_not_ready = status
            .as_ref()
            .and_then(|status| {
                wire::condition(status.v1beta2.as_ref(), status.conditions.as_ref(), INFRASTRUCTURE_READY)
            })
            .and_then(|condition| Condition::if_false(condition, context));
        let delete_mark = object.metadata.annotation(&context.keys.delete_machine);
        let delete_mark = delete_mark.map(|mark| interner.intern(wire::mark(mark)));
        Self {
            owner,
            cluster_name,
            // These two texts are interned, since the Node has them as well.
            provider_id: object
                .spec
                .and_then(|spec| spec.provider_id)
                .filter(|id| !id.is_empty())
                .map(|id| interner.intern(&wire::value(&id))),
            node_name: status
                .as_ref()
                .and_then(|status| status.node_ref.as_ref())
                .filter(|node| !node.name.is_empty())
                .map(|node| interner.intern(&wire::value(&node.name))),
            phase: status.as_ref().map_or(MachinePhase::Other, |status| MachinePhase::parse(&status.phase)),
            created: Created::at(object.metadata.created()),
            rare: Rare { failure, infrastructure_not_ready, delete_mark }.boxed(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            meta,
        }
    }
}

/// Returns the failure from `status`, under either name, else from `status.deprecated.v1beta1`.
fn failure(status: &Status<'_>) -> Option<Failure> {
    let old = status.deprecated.as_ref().and_then(|deprecated| deprecated.v1beta1.as_ref());
    Failure::of(
        &[
            status.failure_reason.as_ref(),
            status.error_reason.as_ref(),
            old.and_then(|old| old.failure_reason.as_ref()),
        ],
        &[
            status.failure_message.as_ref(),
            status.error_message.as_ref(),
            old.and_then(|old| old.failure_message.as_ref()),
        ],
    )
}
