//! Evaluates an object to a node group, or to the reason why it is none. Every part of the program must decide this
//! here, and nowhere else.

use std::{fmt, sync::Arc};

use thiserror::Error;

use crate::{
    Bounds, CapacityWords, Driver, ErrorRules, Grace, GroupId, GroupPrice, NodeTemplate, Overrides, PriceList, Problem,
    ProblemKind, RealNodes, Scope, TemplateRules,
    capi::{
        Cluster, InfrastructureTemplate, KARPENTER_MEMBER, Keys, PAUSED, REPLICAS_MANAGED_BY, ScalableKind,
        ScalableResource,
    },
    named_enum, options, price,
    problem::keep_first,
    rollout, size,
    template::{self, FromZero},
};

/// The rules that all objects of a workload cluster share.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The annotation keys in force.
    pub keys: Keys,
    /// The scope: the objects that this program manages.
    pub scope: Scope,
    /// The operator's rules for all templates.
    pub template: TemplateRules,
    /// The operator's prices of Nodes.
    pub prices: Arc<PriceList>,
    /// The operator's rules for deletes of failed Machines.
    pub errors: ErrorRules,
    /// The operator's further texts of a lack of capacity.
    pub capacity_words: CapacityWords,
}

impl Rules {
    /// Returns the rules of a scope with nothing else chosen.
    pub fn new(scope: Scope) -> Self {
        Self {
            keys: Keys::default(),
            scope,
            template: TemplateRules::default(),
            prices: Arc::default(),
            errors: ErrorRules::default(),
            capacity_words: CapacityWords::default(),
        }
    }
}

/// The state of an object's infrastructure template.
#[derive(Clone, Copy, Debug)]
pub enum InfrastructureState<'a> {
    /// The object names no template.
    None,
    /// The template hasn't been read yet.
    Unknown,
    /// The template can't be read, with the reason: missing, forbidden, not decodable.
    Unreadable(&'a str),
    /// The template.
    Known(&'a InfrastructureTemplate),
}

/// A node group.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Its id.
    pub id: GroupId,
    /// Its min and max size.
    pub bounds: Bounds,
    /// The Node that would join; `None` if too little is known, which is an error only for a group without replicas.
    pub template: Option<NodeTemplate>,
    /// What states cpu and memory of its Nodes while it has none.
    pub from_zero: Option<FromZero>,
    /// The drivers of its Nodes, which the template can't carry.
    pub drivers: Vec<Driver>,
    /// The autoscaling options that it overrides.
    pub options: Overrides,
    /// The price of one of its Nodes, if it is stated.
    pub price: Option<GroupPrice>,
    /// True if its Machines are deleted even while it is rolling out.
    pub ignores_rollouts: bool,
    /// The time for which a lack of capacity isn't an error of its Machines yet.
    pub capacity_error_grace: Grace,
    /// Its problems; each invalid value was skipped.
    pub problems: Vec<Problem>,
    /// Its notes, which aren't problems.
    pub notes: Vec<String>,
}

/// The note on a group that can fall to 0 and not grow again.
pub const LOST_AT_ZERO: &str = "once it has no replicas it is excluded, and nothing scales it up again: its min size is 0, and \
    cpu and memory of its Nodes aren't known. Set its capacity annotations, or status.capacity of its infrastructure template, \
    or a min size of 1";

/// Returns the node group that the object is. `cluster` is its Cluster, if known; `nodes` has the observations of its
/// Nodes.
///
/// Pausing follows Cluster API: an object is paused by its own annotation or by spec.paused of its Cluster. The
/// annotation on a Cluster pauses only the Cluster itself. OpenShift's controller pauses an object for which another
/// API is authoritative.
///
/// # Errors
/// If the object is no node group, with the reason.
pub fn evaluate(
    object: &ScalableResource,
    cluster: Option<&Cluster>,
    infrastructure: InfrastructureState<'_>,
    nodes: RealNodes<'_>,
    rules: &Rules,
) -> Result<Box<Definition>, Excluded> {
    if !rules.scope.matches(object) {
        return Err(Exclusion::OutOfScope.into());
    }
    if object.deployment.is_some() {
        return Err(Exclusion::OwnedByMachineDeployment.into());
    }
    let mut unknown = size::unknown(&rules.keys, &object.annotations);
    let bounds = size::bounds(&rules.keys, &object.annotations);
    let of_another = if bounds == Ok(None) { None } else { of_another_autoscaler(object) };
    if let Some(reason) = of_another {
        return Err(reason.into());
    }
    let bounds = match bounds {
        Ok(Some(bounds)) => bounds,
        excluded => {
            let reason = if excluded.is_ok() { Exclusion::NotAutoscaled } else { Exclusion::InvalidBounds };
            let mut problems: Vec<_> = excluded.err().into_iter().chain(unknown).collect();
            keep_first(&mut problems);
            return Err(Excluded { reason, problems });
        }
    };
    let is_paused = object.annotations.contains_key(PAUSED) || cluster.is_some_and(|cluster| cluster.paused);
    if is_paused {
        return Err(Exclusion::Paused.into());
    }
    if object.handed_over {
        return Err(Exclusion::HandedOver.into());
    }
    let (known, mut problems) = match infrastructure {
        InfrastructureState::None | InfrastructureState::Unknown => (None, Vec::new()),
        InfrastructureState::Unreadable(why) => (None, vec![unreadable(object, why)]),
        InfrastructureState::Known(known) => (Some(known), Vec::new()),
    };
    problems.append(&mut unknown);
    problems.extend(options::unknown_own(&object.annotations));
    let built = template::build(object, known, nodes, &rules.template);
    problems.extend(built.problems);
    let (options, of_options) = options::overrides(&rules.keys, &object.annotations);
    problems.extend(of_options);
    let (price, of_price) = price::of_group(object, built.template.as_ref(), nodes, &rules.prices);
    problems.extend(of_price);
    let ignores_rollouts = rollout::is_ignored(object).unwrap_or_else(|problem| {
        problems.push(problem);
        false
    });
    let capacity_error_grace = Grace::of_group(&object.annotations, rules.errors.grace).unwrap_or_else(|problem| {
        problems.push(problem);
        rules.errors.grace
    });
    keep_first(&mut problems);
    if built.template.is_none() && object.replicas.unwrap_or_default() <= 0 {
        return Err(match infrastructure {
            InfrastructureState::Unknown => Exclusion::WaitingForTemplate.into(),
            InfrastructureState::None | InfrastructureState::Unreadable(_) | InfrastructureState::Known(_) => {
                Excluded { reason: Exclusion::NoScaleFromZero, problems }
            }
        });
    }
    let id = GroupId::of(object.kind, &object.meta);
    let template::Built { template, from_zero, drivers, mut notes, .. } = built;
    let is_unknown = matches!(infrastructure, InfrastructureState::Unknown);
    if template.is_none() && bounds.min == 0 && !is_unknown {
        notes.push(LOST_AT_ZERO.to_owned());
    }
    Ok(Box::new(Definition {
        id,
        bounds,
        template,
        from_zero,
        drivers,
        options,
        price,
        ignores_rollouts,
        capacity_error_grace,
        problems,
        notes,
    }))
}

/// Returns the reason if another autoscaler sizes the object. Its size annotations may be there for that one: Karpenter
/// reads the max size.
fn of_another_autoscaler(object: &ScalableResource) -> Option<Exclusion> {
    match object.kind {
        ScalableKind::MachineDeployment => {
            object.labels.contains_key(KARPENTER_MEMBER).then_some(Exclusion::KarpenterMember)
        }
        // As in Cluster API, any other value counts, the empty one too.
        ScalableKind::MachinePool => {
            let by = object.annotations.get(REPLICAS_MANAGED_BY).filter(|by| *by != "false");
            by.map(|_| Exclusion::ReplicasManagedElsewhere)
        }
        ScalableKind::MachineSet => None,
    }
}

fn unreadable(object: &ScalableResource, why: &str) -> Problem {
    let namespace = &object.meta.key.namespace;
    let template = object.infrastructure.as_ref().map_or_else(
        || "its infrastructure template".to_owned(),
        |reference| {
            format!("infrastructure template {}.{} {namespace}/{}", reference.kind, reference.group, reference.name)
        },
    );
    Problem::new(
        ProblemKind::Template,
        format!("{template} can't be read: {why}; until then only the capacity annotations say what a Node has"),
    )
}

// The reasons why an object is no node group, for rules, metrics, logs and reports alike.
// [`evaluate`] returns those that follow from the objects; an index of objects adds those that follow
// from what it can read.

named_enum! {
    /// The reason why an object is no node group, with a sentence for people that says the remedy.
    #[derive(Clone, Copy, Debug, Eq, Error, Hash, Ord, PartialEq, PartialOrd)]
    pub enum Exclusion {
        /// No scope matches it.
        #[error(
            "it is out of scope: no --node-group-auto-discovery or --cluster fits its namespace, cluster name and labels"
        )]
        OutOfScope = "out_of_scope",
        /// Its MachineDeployment scales it: it is a MachineSet.
        #[error("its MachineDeployment owns it: set the size annotations there")]
        OwnedByMachineDeployment = "owned_by_machine_deployment",
        /// Its max size is 0.
        #[error("it isn't autoscaled: set the annotation cluster-api-autoscaler-node-group-max-size to more than 0")]
        NotAutoscaled = "not_autoscaled",
        /// Karpenter sizes it: it is a MachineDeployment.
        #[error(
            "its label {KARPENTER_MEMBER} gives it to Karpenter, which sets its size: remove the label to have it \
             autoscaled here"
        )]
        KarpenterMember = "karpenter_member",
        /// Its infrastructure provider writes the size that another autoscaler chooses: it is a MachinePool.
        #[error(
            "its annotation {REPLICAS_MANAGED_BY} says that another autoscaler sizes it, and its infrastructure \
             provider writes that size into spec.replicas: remove the annotation to have it autoscaled here"
        )]
        ReplicasManagedElsewhere = "replicas_managed_elsewhere",
        /// Its bounds are invalid.
        #[error(
            "its size annotations can't be used: correct cluster-api-autoscaler-node-group-min-size and -max-size"
        )]
        InvalidBounds = "invalid_bounds",
        /// It or its Cluster is paused.
        #[error("it is paused: remove its annotation {PAUSED}, or set spec.paused of its Cluster to false")]
        Paused = "paused",
        /// Another API is authoritative for it, which only OpenShift has.
        #[error(
            "its status.authoritativeAPI names another API, so that its controller ignores it: have it be MachineAPI"
        )]
        HandedOver = "handed_over",
        /// It has no replicas, and the capacity of a Node isn't known.
        #[error(
            "it has no replicas and can't scale from zero: the cpu and memory of its Nodes must be known, from its \
             infrastructure template's status.capacity, from the annotations \
             capacity.cluster-autoscaler.kubernetes.io/cpu and …/memory, or from a Node that it has had, with \
             --remember-in"
        )]
        NoScaleFromZero = "no_scale_from_zero",
        /// Its namespace can't be read.
        #[error(
            "its namespace can't be read any more, so that nothing certain is known of it: grant list and watch there, \
             or take the namespace out of the scope if it was deleted"
        )]
        NamespaceForbidden = "namespace_forbidden",
        /// It has no replicas, and its infrastructure template hasn't been read yet.
        #[error("it has no replicas, and its infrastructure template hasn't been read yet: the checks say why")]
        WaitingForTemplate = "waiting_for_template",
        /// It doesn't decode.
        #[error("its object can't be read")]
        Undecodable = "undecodable",
        /// It was deleted. A former group is served with its last values until the next Refresh.
        #[error("its object was deleted")]
        Gone = "gone",
    }
}

impl Exclusion {
    /// Returns true if someone has to fix something, false if the object is left out on purpose or for now.
    pub fn is_error(self) -> bool {
        match self {
            Self::InvalidBounds | Self::NoScaleFromZero | Self::NamespaceForbidden | Self::Undecodable => true,
            Self::OutOfScope
            | Self::OwnedByMachineDeployment
            | Self::NotAutoscaled
            | Self::KarpenterMember
            | Self::ReplicasManagedElsewhere
            | Self::Paused
            | Self::HandedOver
            | Self::WaitingForTemplate
            | Self::Gone => false,
        }
    }

    /// Returns true if the object is meant to be a group, and isn't one for now.
    pub fn is_meant_as_group(self) -> bool {
        match self {
            Self::InvalidBounds
            | Self::Paused
            | Self::HandedOver
            | Self::NoScaleFromZero
            | Self::WaitingForTemplate
            | Self::NamespaceForbidden => true,
            Self::OutOfScope
            | Self::OwnedByMachineDeployment
            | Self::NotAutoscaled
            | Self::KarpenterMember
            | Self::ReplicasManagedElsewhere
            | Self::Undecodable
            | Self::Gone => false,
        }
    }

    /// Returns true if the template of the object matters: it would be a group by its template alone.
    pub fn needs_template(self) -> bool {
        match self {
            Self::NoScaleFromZero | Self::WaitingForTemplate | Self::Paused | Self::HandedOver => true,
            Self::OutOfScope
            | Self::OwnedByMachineDeployment
            | Self::NotAutoscaled
            | Self::KarpenterMember
            | Self::ReplicasManagedElsewhere
            | Self::InvalidBounds
            | Self::NamespaceForbidden
            | Self::Undecodable
            | Self::Gone => false,
        }
    }
}

/// An object that is no node group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Excluded {
    /// The reason.
    pub reason: Exclusion,
    /// The object's problems.
    pub problems: Vec<Problem>,
}

impl Excluded {
    /// Creates one with a single problem, which is the cause.
    pub fn by(reason: Exclusion, problem: Problem) -> Self {
        Self { reason, problems: vec![problem] }
    }
}

/// Excludes an object without a problem.
impl From<Exclusion> for Excluded {
    fn from(reason: Exclusion) -> Self {
        Self { reason, problems: Vec::new() }
    }
}

/// Writes the reason. The problem of an object that doesn't decode says more than that.
impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.reason, self.problems.first()) {
            (Exclusion::Undecodable, Some(problem)) => problem.fmt(f),
            (reason, _) => reason.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
