//! Evaluates an object to a node group, or to the reason why it is none. Every part of the program must decide this
//! here, and nowhere else.

mod exclusion;

use std::sync::Arc;

use crate::capi::{
    Cluster, InfrastructureTemplate, KARPENTER_MEMBER, Keys, PAUSED, REPLICAS_MANAGED_BY, ScalableKind,
    ScalableResource,
};

use super::{
    Bounds, CapacityWords, Driver, ErrorRules, Grace, GroupId, GroupPrice, NodeTemplate, Overrides, PriceList, Problem,
    ProblemKind, RealNodes, Scope, TemplateRules, bounds, options, price, problem::keep_first, rollout, template,
};

pub use self::exclusion::{Excluded, Exclusion};

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
    #[must_use]
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
pub const LOST_AT_ZERO: &str = "once it has no replicas it is left out, and nothing scales it up again: its min size is 0, and \
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
    let mut unknown = bounds::unknown(&rules.keys, &object.annotations);
    let bounds = bounds::bounds(&rules.keys, &object.annotations);
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
    let template::Built { template, drivers, mut notes, .. } = built;
    let is_unknown = matches!(infrastructure, InfrastructureState::Unknown);
    if template.is_none() && bounds.min == 0 && !is_unknown {
        notes.push(LOST_AT_ZERO.to_owned());
    }
    Ok(Box::new(Definition {
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

#[cfg(test)]
mod tests;
