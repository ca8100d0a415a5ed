//! MachineDeployment, MachineSet and MachinePool: the kinds that have a `/scale` subresource and can be node groups.
//! One type serves all three; fields that a kind lacks are empty.

use arcstr::ArcStr;
use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use shared_informer::{Document, Projection};

use super::{Condition, Context, Failure, MOST_KEPT, MOST_LISTED, Meta, machine::INFRASTRUCTURE_READY, wire};
use crate::named_enum;

named_enum! {
    /// The kinds that can be node groups, as the API spells them.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub enum ScalableKind {
        /// A Deployment of MachineSets, with rollouts.
        MachineDeployment = "MachineDeployment",
        /// A fixed number of Machines.
        MachineSet = "MachineSet",
        /// A pool whose instances the infrastructure provider manages.
        MachinePool = "MachinePool",
    }
}

impl ScalableKind {
    /// Parses the name of a kind.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for ScalableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A MachineDeployment, MachineSet or MachinePool as read here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScalableResource {
    /// The kind.
    pub kind: ScalableKind,
    /// Identity.
    pub meta: Meta,
    /// All labels: a scope may select by any of them.
    pub labels: BTreeMap<ArcStr, ArcStr>,
    /// The annotations that a rule reads on a group.
    pub annotations: BTreeMap<ArcStr, ArcStr>,
    /// The MachineDeployment that owns a MachineSet, in the same namespace.
    pub deployment: Option<ArcStr>,
    /// `spec.clusterName`, else the label `cluster.x-k8s.io/cluster-name`, else empty.
    pub cluster_name: ArcStr,
    /// `spec.replicas`. Cluster API sets a default, so it is absent only for a moment.
    pub replicas: Option<i32>,
    /// `spec.template.spec.infrastructureRef`, in the same namespace.
    pub infrastructure: Option<InfrastructureRef>,
    /// `spec.template.spec.bootstrap`: its configRef, else its dataSecretName as a Secret; in the same namespace.
    pub bootstrap: Option<InfrastructureRef>,
    /// `spec.template.spec.failureDomain`; for a MachinePool otherwise `spec.failureDomains`, if it has one entry.
    pub failure_domain: Option<ArcStr>,
    /// `spec.template.metadata.labels`.
    pub template_labels: BTreeMap<ArcStr, ArcStr>,
    /// `spec.template.spec.metadata.labels`, which only OpenShift has: its controllers set all of them on the Nodes.
    pub node_labels: BTreeMap<ArcStr, ArcStr>,
    /// `spec.template.spec.taints`.
    pub taints: Vec<MachineTaint>,
    /// The annotation revision of a MachineSet, if it is a number.
    pub revision: Option<i64>,
    /// `status.replicas`, 0 when absent.
    pub status_replicas: i32,
    /// `spec.template.spec.version`: the Kubernetes version.
    pub version: Option<ArcStr>,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// The time since which the condition RollingOut is True. Cluster API sets it on MachineDeployments since 1.9.
    pub rolling_out_since: Option<Timestamp>,
    /// True if a MachineDeployment rolls out with the strategy OnDelete.
    pub on_delete: bool,
    /// The reason for which a MachineSet creates no Machine for a larger size, such as a preflight check that fails
    /// during an upgrade of the control plane.
    pub held_back: Option<ArcStr>,
    /// `metadata.generation`, 0 when absent.
    pub generation: i64,
    /// True if `status.authoritativeAPI`, which only OpenShift has, names another API: its controller then ignores the
    /// object.
    pub handed_over: bool,
    /// `spec.providerIDList` of a MachinePool.
    pub provider_ids: Vec<ArcStr>,
    /// The names in `status.nodeRefs` of a MachinePool.
    pub node_names: Vec<ArcStr>,
    /// The failure's reason and message of a MachinePool, from the field of either contract version.
    pub failure: Option<Failure>,
    /// The condition InfrastructureReady of a MachinePool when its status is False. Of a v1beta2 object it is in
    /// `status.deprecated.v1beta1`.
    pub infrastructure_not_ready: Option<Condition>,
}

/// A reference to an infrastructure or bootstrap template, in the namespace of the object that holds it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct InfrastructureRef {
    /// The API group.
    pub group: ArcStr,
    /// The kind.
    pub kind: ArcStr,
    /// The name.
    pub name: ArcStr,
}

/// A taint of `spec.template.spec.taints` (Cluster API 1.12 and later, an alpha gate).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MachineTaint {
    /// The key.
    pub key: ArcStr,
    /// The value, often empty.
    pub value: ArcStr,
    /// The effect, as the object has it.
    pub effect: ArcStr,
    /// The time at which Cluster API sets it on the Node.
    pub propagation: Propagation,
}

/// The time at which Cluster API sets a Machine's taint on its Node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Propagation {
    /// The taint is kept on the Node.
    Always,
    /// The taint is set once, when the Node joins.
    OnInitialization,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    cluster_name: Option<wire::Text<'a>>,
    replicas: Option<i32>,
    template: Option<Template<'a>>,
    #[serde(rename = "providerIDList")]
    provider_id_list: Option<Vec<wire::Text<'a>>>,
    failure_domains: Option<Vec<wire::Text<'a>>>,
    /// In v1beta1.
    strategy: Option<Strategy<'a>>,
    /// In v1beta2.
    rollout: Option<RolloutSpec<'a>>,
}

#[derive(Deserialize)]
struct RolloutSpec<'a> {
    #[serde(borrow)]
    strategy: Option<Strategy<'a>>,
}

#[derive(Deserialize)]
struct Strategy<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<wire::Text<'a>>,
}

#[derive(Deserialize)]
struct Template<'a> {
    #[serde(borrow)]
    metadata: Option<TemplateMetadata<'a>>,
    spec: Option<TemplateSpec<'a>>,
}

#[derive(Deserialize)]
struct TemplateMetadata<'a> {
    #[serde(borrow)]
    labels: Option<wire::Texts<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TemplateSpec<'a> {
    #[serde(borrow)]
    metadata: Option<TemplateMetadata<'a>>,
    infrastructure_ref: Option<wire::Reference<'a>>,
    taints: Option<Vec<Taint<'a>>>,
    bootstrap: Option<Bootstrap<'a>>,
    failure_domain: Option<wire::Text<'a>>,
    version: Option<wire::Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bootstrap<'a> {
    #[serde(borrow)]
    config_ref: Option<wire::Reference<'a>>,
    data_secret_name: Option<wire::Text<'a>>,
}

#[derive(Deserialize)]
struct Taint<'a> {
    #[serde(borrow, default)]
    key: wire::Text<'a>,
    #[serde(default)]
    value: wire::Text<'a>,
    #[serde(default)]
    effect: wire::Text<'a>,
    #[serde(default)]
    propagation: wire::Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    replicas: Option<i32>,
    #[serde(borrow, rename = "authoritativeAPI")]
    authoritative_api: Option<wire::Text<'a>>,
    node_refs: Option<Vec<wire::NodeRef<'a>>>,
    conditions: Option<Vec<wire::Condition<'a>>>,
    v1beta2: Option<wire::V1Beta2<'a>>,
    failure_reason: Option<wire::Text<'a>>,
    failure_message: Option<wire::Text<'a>>,
    deprecated: Option<wire::Deprecated<'a>>,
}

impl Status<'_> {
    fn deprecated(&self) -> Option<&wire::DeprecatedV1Beta1<'_>> {
        self.deprecated.as_ref()?.v1beta1.as_ref()
    }
}

impl Spec<'_> {
    fn is_on_delete(&self) -> bool {
        let of_rollout = self.rollout.as_ref().and_then(|rollout| rollout.strategy.as_ref());
        let kind = of_rollout.or(self.strategy.as_ref()).and_then(|strategy| strategy.kind.as_deref());
        kind == Some("OnDelete")
    }
}

/// The JSON of any of the three kinds.
struct Json;

impl Document for Json {
    type Json<'a> = wire::Object<'a, Spec<'a>, Status<'a>>;
}

impl ScalableResource {
    /// Decodes an object of `kind`, of either contract version.
    ///
    /// # Errors
    /// The text of the decoding error, when a field that is read has another type.
    pub fn decode(kind: ScalableKind, meta: Meta, value: &Value, context: &Context) -> Result<Self, String> {
        Self::of(kind, meta, wire::read(value)?, context)
    }

    /// Returns the projection with which an informer reads objects of `kind`.
    pub fn projection(kind: ScalableKind, context: &Arc<Context>) -> Projection<Self> {
        let of_error = Context::salvage(context);
        let context = Arc::clone(context);
        Projection::typed::<Json>(format!("capi/{kind}"), move |meta, json| Self::of(kind, meta, json, &context))
            .with_identity_within(|scalable| &scalable.meta)
            .with_bytes(Self::bytes)
            .with_salvage(of_error)
    }

    /// Returns the bytes of its texts, without its identity.
    pub(super) fn bytes(&self) -> usize {
        let maps = [&self.labels, &self.annotations, &self.template_labels, &self.node_labels].into_iter().flatten();
        let taints = self.taints.iter().flat_map(|taint| [&taint.key, &taint.value, &taint.effect]);
        let listed = maps.flat_map(|(key, value)| [key, value]).chain(taints);
        let listed = listed.chain(&self.provider_ids).chain(&self.node_names);
        let references = self.infrastructure.iter().chain(&self.bootstrap);
        let references = references.flat_map(|reference| [&reference.group, &reference.kind, &reference.name]);
        let named = [&self.deployment, &self.failure_domain, &self.version, &self.held_back].into_iter().flatten();
        let failure = self.failure.iter().flat_map(|failure| [&failure.reason, &failure.message]).flatten();
        let condition = self.infrastructure_not_ready.iter().flat_map(|it| [&it.reason, &it.message]);
        let said = named.chain(failure).chain(condition);
        wire::listed_bytes(listed) + wire::bytes(references.chain(said).chain([&self.cluster_name]))
    }

    fn of(
        kind: ScalableKind,
        meta: Meta,
        object: wire::Object<'_, Spec<'_>, Status<'_>>,
        context: &Context,
    ) -> Result<Self, String> {
        let intern = |text: &str| context.interner.intern(&wire::value(text));
        let share = |texts: Option<&wire::Texts<'_>>, keep: &dyn Fn(&str) -> bool| {
            texts
                .into_iter()
                .flat_map(wire::Texts::iter)
                .filter(|(key, _)| keep(key))
                .map(|(key, value)| (intern(key), intern(value)))
                .collect::<BTreeMap<_, _>>()
        };
        let metadata = &object.metadata;
        let spec = object.spec.as_ref();
        let template = spec.and_then(|spec| spec.template.as_ref());
        let template_spec = template.and_then(|template| template.spec.as_ref());
        let cluster_name = spec
            .and_then(|spec| spec.cluster_name.as_deref())
            .filter(|name| !name.is_empty())
            .or_else(|| metadata.label(&context.keys.cluster_name))
            .unwrap_or_default();
        let deployment = match kind {
            ScalableKind::MachineSet => {
                metadata.owner(&context.keys, &["MachineDeployment"]).map(|(_, name)| intern(name))
            }
            ScalableKind::MachineDeployment | ScalableKind::MachinePool => None,
        };
        let pool_status = object.status.as_ref().filter(|_| kind == ScalableKind::MachinePool);
        let (failure, infrastructure_not_ready) =
            (pool_status.and_then(failure), pool_status.and_then(|status| infrastructure_not_ready(status, context)));
        let object = Self {
            kind,
            labels: share(metadata.labels.as_ref(), &|_| true),
            annotations: share(metadata.annotations.as_ref(), &|key| context.keys.is_read_on_groups(key)),
            deployment,
            cluster_name: intern(cluster_name),
            replicas: spec.and_then(|spec| spec.replicas),
            infrastructure: template_spec
                .and_then(|spec| spec.infrastructure_ref.as_ref())
                .and_then(|reference| infrastructure_ref(reference, context)),
            bootstrap: template_spec
                .and_then(|spec| spec.bootstrap.as_ref())
                .and_then(|bootstrap| bootstrap_ref(bootstrap, context)),
            failure_domain: failure_domain(spec).map(intern),
            template_labels: share(template.and_then(|template| template.metadata.as_ref()?.labels.as_ref()), &|_| {
                true
            }),
            node_labels: share(template_spec.and_then(|spec| spec.metadata.as_ref()?.labels.as_ref()), &|_| true),
            taints: template_spec.map(|spec| taints(spec, context)).unwrap_or_default(),
            revision: metadata.annotation(&context.keys.revision).and_then(|text| text.parse().ok()),
            status_replicas: object.status.as_ref().and_then(|status| status.replicas).unwrap_or_default(),
            version: template_spec
                .and_then(|spec| spec.version.as_deref())
                .filter(|version| !version.is_empty())
                .map(intern),
            created: metadata.created(),
            rolling_out_since: object
                .status
                .as_ref()
                .and_then(|status| wire::condition(status.v1beta2.as_ref(), status.conditions.as_ref(), "RollingOut"))
                .filter(|condition| condition.status == "True")
                .and_then(wire::Condition::since),
            on_delete: spec.is_some_and(Spec::is_on_delete),
            held_back: match kind {
                ScalableKind::MachineSet => object.status.as_ref().and_then(held_back),
                ScalableKind::MachineDeployment | ScalableKind::MachinePool => None,
            },
            generation: metadata.generation.unwrap_or_default(),
            handed_over: object
                .status
                .as_ref()
                .and_then(|status| status.authoritative_api.as_deref())
                .is_some_and(|authority| !matches!(authority, "" | "MachineAPI")),
            provider_ids: spec
                .and_then(|spec| spec.provider_id_list.as_ref())
                .into_iter()
                .flatten()
                .filter(|id| !id.is_empty())
                .map(|id| ArcStr::from(wire::value(id)))
                .collect(),
            node_names: object
                .status
                .and_then(|status| status.node_refs)
                .into_iter()
                .flatten()
                .filter(|node| !node.name.is_empty())
                .map(|node| ArcStr::from(wire::value(&node.name)))
                .collect(),
            failure,
            infrastructure_not_ready,
            meta,
        };
        object.check_kept()?;
        Ok(object)
    }

    /// # Errors
    /// When a limit is exceeded.
    fn check_kept(&self) -> Result<(), String> {
        let mut kept = wire::TotalSize::at_most(MOST_KEPT);
        let maps = [&self.labels, &self.annotations, &self.template_labels, &self.node_labels];
        for (key, value) in maps.into_iter().flatten() {
            kept.add([key, value]);
        }
        for MachineTaint { key, value, effect, .. } in &self.taints {
            kept.add([key, value, effect]);
        }
        for InfrastructureRef { group, kind, name } in self.infrastructure.iter().chain(&self.bootstrap) {
            kept.add([group, kind, name]);
        }
        let names = [&self.deployment, &self.failure_domain, &self.version];
        kept.add(names.into_iter().flatten().chain([&self.cluster_name]));
        kept.check("its labels, taints, references and those annotations that are read")?;
        let mut listed = wire::TotalSize::at_most(MOST_LISTED);
        for name in self.provider_ids.iter().chain(&self.node_names) {
            listed.add([name]);
        }
        listed.check("its providerIDs and nodeRefs")
    }
}

fn taints(spec: &TemplateSpec<'_>, context: &Context) -> Vec<MachineTaint> {
    let intern = |text: &str| context.interner.intern(&wire::value(text));
    let taint = |taint: &Taint<'_>| MachineTaint {
        key: intern(&taint.key),
        value: intern(&taint.value),
        effect: intern(&taint.effect),
        propagation: if taint.propagation == "OnInitialization" {
            Propagation::OnInitialization
        } else {
            Propagation::Always
        },
    };
    spec.taints.iter().flatten().map(taint).collect()
}

/// Returns a reference with its group from `apiGroup` (v1beta2), else from `apiVersion` (v1beta1). The version is
/// left to discovery, since the named one may not be served any more.
fn infrastructure_ref(reference: &wire::Reference<'_>, context: &Context) -> Option<InfrastructureRef> {
    if reference.kind.is_empty() || reference.name.is_empty() {
        return None;
    }
    let intern = |text: &str| context.interner.intern(&wire::value(text));
    let group = match (&reference.api_group, &reference.api_version) {
        (Some(group), _) if !group.is_empty() => group,
        (_, Some(api_version)) => wire::group_of(api_version),
        (_, None) => return None,
    };
    Some(InfrastructureRef { group: intern(group), kind: intern(&reference.kind), name: intern(&reference.name) })
}

fn bootstrap_ref(bootstrap: &Bootstrap<'_>, context: &Context) -> Option<InfrastructureRef> {
    let configuration = bootstrap.config_ref.as_ref().and_then(|reference| infrastructure_ref(reference, context));
    configuration.or_else(|| {
        let name = bootstrap.data_secret_name.as_deref().filter(|name| !name.is_empty())?;
        let intern = |text: &str| context.interner.intern(&wire::value(text));
        Some(InfrastructureRef { group: intern(""), kind: intern("Secret"), name: intern(name) })
    })
}

/// Returns the reasons in the condition ScalingUp, whose message lists the blockers; before Cluster API 1.9 those in
/// MachinesCreated.
fn held_back(status: &Status<'_>) -> Option<ArcStr> {
    const BLOCKED: &str = " is blocked because:";
    let condition = |kind| wire::condition(status.v1beta2.as_ref(), status.conditions.as_ref(), kind);
    let reasons = match condition("ScalingUp") {
        Some(scaling_up) if scaling_up.status == "True" => scaling_up.message.split_once(BLOCKED)?.1,
        Some(_) => return None,
        None => {
            let created = condition("MachinesCreated")?;
            (created.status == "False" && created.reason == "PreflightCheckFailed").then_some(&*created.message)?
        }
    };
    let reasons = reasons.lines().map(|line| line.trim().trim_start_matches("* ")).filter(|line| !line.is_empty());
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    Some(wire::message(&reasons).into()).filter(|reasons: &ArcStr| !reasons.is_empty())
}

/// Returns the failure of a MachinePool.
fn failure(status: &Status<'_>) -> Option<Failure> {
    let old = status.deprecated();
    Failure::of(
        &[status.failure_reason.as_ref(), old.and_then(|old| old.failure_reason.as_ref())],
        &[status.failure_message.as_ref(), old.and_then(|old| old.failure_message.as_ref())],
    )
}

/// Returns the condition with which a MachinePool quotes its infrastructure. Cluster API 1.14 still sets it as one of
/// v1beta1 alone.
fn infrastructure_not_ready(status: &Status<'_>, context: &Context) -> Option<Condition> {
    let old = status.deprecated().and_then(|old| old.conditions.as_ref());
    let condition = wire::condition(status.v1beta2.as_ref(), status.conditions.as_ref(), INFRASTRUCTURE_READY)
        .or_else(|| wire::condition(None, old, INFRASTRUCTURE_READY))?;
    Condition::if_false(condition, context)
}

/// Returns the failure domain of all Machines, or `None` if it is unknown or there may be several.
fn failure_domain<'a>(spec: Option<&'a Spec<'_>>) -> Option<&'a str> {
    let spec = spec?;
    let of_template = spec.template.as_ref().and_then(|template| template.spec.as_ref()?.failure_domain.as_deref());
    let of_pool = match spec.failure_domains.as_deref() {
        Some([one]) => Some(&**one),
        Some(_) | None => None,
    };
    of_template.filter(|domain| !domain.is_empty()).or(of_pool).filter(|domain| !domain.is_empty())
}
