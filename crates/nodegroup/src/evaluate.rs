//! Evaluates an object to a node group, or to the reason why it is none. Every part of the program must decide this
//! here, and nowhere else.

use std::{fmt, sync::Arc};

use capi::{Cluster, InfrastructureTemplate, Keys, PAUSED, ScalableResource};

use super::{
    Bounds, Drivers, ErrorRules, Grace, GroupId, GroupPrice, NodeTemplate, Overrides, PriceList, Problem, ProblemKind,
    RealNodes, Scope, TemplateRules, bounds, options, price, problem::keep_first, rollout, template,
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
}

impl Rules {
    /// Returns the rules of a scope with nothing else chosen.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        Self {
            keys: Keys::default(),
            scope,
            template: TemplateRules::default(),
            prices: Arc::default(),
            errors: ErrorRules::default(),
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

/// The verdict on an object: a node group for Cluster Autoscaler, or not.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A node group.
    Group(Box<Definition>),
    /// No node group, with the reason and the object's problems.
    Excluded(Exclusion, Vec<Problem>),
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
    /// The drivers of its Nodes, which the template can't carry.
    pub drivers: Drivers,
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

/// The reason why an object is no node group.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Exclusion {
    /// No scope matches it.
    OutOfScope,
    /// Its MachineDeployment scales it: it is a MachineSet.
    OwnedByMachineDeployment,
    /// Its max size is 0.
    NotAutoscaled,
    /// Its bounds are invalid.
    InvalidBounds,
    /// It or its Cluster is paused.
    Paused,
    /// It has no replicas, and the capacity of a Node isn't known.
    NoScaleFromZero,
    /// Its namespace can't be read.
    NamespaceForbidden,
}

impl Exclusion {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::OutOfScope,
        Self::OwnedByMachineDeployment,
        Self::NotAutoscaled,
        Self::InvalidBounds,
        Self::Paused,
        Self::NoScaleFromZero,
        Self::NamespaceForbidden,
    ];

    /// Returns the reason as a metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OutOfScope => "out_of_scope",
            Self::OwnedByMachineDeployment => "owned_by_machine_deployment",
            Self::NotAutoscaled => "not_autoscaled",
            Self::InvalidBounds => "invalid_bounds",
            Self::Paused => "paused",
            Self::NoScaleFromZero => "no_scale_from_zero",
            Self::NamespaceForbidden => "namespace_forbidden",
        }
    }

    /// Returns true if someone has to fix something, false if the object is left out on purpose.
    #[must_use]
    pub fn is_error(self) -> bool {
        match self {
            Self::InvalidBounds | Self::NoScaleFromZero | Self::NamespaceForbidden => true,
            Self::OutOfScope | Self::OwnedByMachineDeployment | Self::NotAutoscaled | Self::Paused => false,
        }
    }
}

/// Writes a sentence for people, with the remedy.
impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfScope => f.write_str(
                "it is out of scope: no --node-group-auto-discovery or --cluster fits its namespace, cluster name and \
                 labels",
            ),
            Self::OwnedByMachineDeployment => {
                f.write_str("its MachineDeployment owns it: set the size annotations there")
            }
            Self::NotAutoscaled => f.write_str(
                "it isn't autoscaled: set the annotation cluster-api-autoscaler-node-group-max-size to more than 0",
            ),
            Self::InvalidBounds => f.write_str(
                "its size annotations can't be used: correct cluster-api-autoscaler-node-group-min-size and -max-size",
            ),
            Self::Paused => {
                write!(
                    f,
                    "it is paused: take off its annotation {PAUSED}, set spec.paused of its Cluster to false, or have \
                     its status.authoritativeAPI be MachineAPI where OpenShift sets that"
                )
            }
            Self::NoScaleFromZero => f.write_str(
                "it has no replicas and can't scale from zero: the cpu and memory of its Nodes must be known, from its \
                 infrastructure template's status.capacity or from the annotations \
                 capacity.cluster-autoscaler.kubernetes.io/cpu and …/memory",
            ),
            Self::NamespaceForbidden => f.write_str(
                "its namespace can't be read any more, so that nothing certain is known of it: grant list and watch there, \
                 or take the namespace out of the scope if it was deleted",
            ),
        }
    }
}

/// Returns the verdict on the object. `cluster` is its Cluster, if known; `nodes` has the observations of its Nodes.
///
/// Pausing follows Cluster API: an object is paused by its own annotation or by spec.paused of its Cluster. The
/// annotation on a Cluster pauses only the Cluster itself. OpenShift's controller pauses an object for which another
/// API is authoritative.
#[must_use]
pub fn evaluate(
    object: &ScalableResource,
    cluster: Option<&Cluster>,
    infrastructure: InfrastructureState<'_>,
    nodes: RealNodes<'_>,
    rules: &Rules,
) -> Verdict {
    let left_out = |reason| Verdict::Excluded(reason, Vec::new());
    if !rules.scope.matches(object) {
        return left_out(Exclusion::OutOfScope);
    }
    if object.deployment.is_some() {
        return left_out(Exclusion::OwnedByMachineDeployment);
    }
    let bounds = match bounds::bounds(&rules.keys, &object.annotations) {
        Ok(Some(bounds)) => bounds,
        Ok(None) => return left_out(Exclusion::NotAutoscaled),
        Err(problem) => return Verdict::Excluded(Exclusion::InvalidBounds, vec![problem]),
    };
    let is_paused = object.annotations.contains_key(PAUSED) || cluster.is_some_and(|cluster| cluster.paused);
    if is_paused || object.handed_over {
        return left_out(Exclusion::Paused);
    }
    let (known, mut problems) = match infrastructure {
        InfrastructureState::None | InfrastructureState::Unknown => (None, Vec::new()),
        InfrastructureState::Unreadable(why) => (None, vec![unreadable(object, why)]),
        InfrastructureState::Known(known) => (Some(known), Vec::new()),
    };
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
        return Verdict::Excluded(Exclusion::NoScaleFromZero, problems);
    }
    let id = GroupId::of(object.kind, &object.meta);
    let template::Built { template, drivers, notes, .. } = built;
    Verdict::Group(Box::new(Definition {
        id,
        bounds,
        template,
        drivers,
        options,
        price,
        ignores_rollouts,
        capacity_error_grace,
        problems,
        notes,
    }))
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

#[cfg(test)]
mod tests;
