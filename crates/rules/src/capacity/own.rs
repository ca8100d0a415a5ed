//! The capacity annotations that only this program reads. An invalid one is dropped and affects no other.

use std::collections::BTreeMap;

use crate::capi::{CAPACITY_PREFIX, OWN_CAPACITY_PREFIX};
use arcstr::ArcStr;

use crate::{
    Problem, ProblemKind, Quantity, Source,
    overhead::OVERHEAD,
    provenance::put,
    remembered::REMEMBER,
    resource_list::{self, CPU, Capacity, EPHEMERAL_STORAGE, MEMORY, PODS},
};

const RESOURCES: &str = "resources";
/// The annotation of a Node's price, which isn't capacity but has the same prefix.
const PRICE: &str = "price-per-hour";

/// The annotation that decides if a failure domain is used as the zone.
pub(crate) const ZONE_FROM_FAILURE_DOMAIN: &str = "zone-from-failure-domain";

/// The annotations, without their prefix.
const KNOWN: [&str; 5] = [OVERHEAD, RESOURCES, PRICE, ZONE_FROM_FAILURE_DOMAIN, REMEMBER];

/// Returns false if a group's annotation says that its failure domain isn't a zone.
///
/// # Errors
/// If the annotation is neither true nor false.
pub(crate) fn takes_zone_of_failure_domain(annotations: &BTreeMap<ArcStr, ArcStr>) -> Result<bool, Problem> {
    let key = format!("{OWN_CAPACITY_PREFIX}{ZONE_FROM_FAILURE_DOMAIN}");
    match annotations.get(key.as_str()).map(ArcStr::as_str) {
        None | Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(value) => {
            Err(Problem::annotation(ProblemKind::Labels, &key, value, "it must be true or false; it is ignored"))
        }
    }
}

/// Returns the resources in the annotation `resources`, which is for resources without a dedicated annotation. An
/// amount of 0 removes a resource from the Node. An unknown key with the prefix is a problem, since it is a typo.
#[must_use]
pub fn of_own_annotations(annotations: &BTreeMap<ArcStr, ArcStr>) -> (Capacity, Vec<Problem>) {
    let mut capacity = Capacity::new();
    let mut problems = Vec::new();
    for (key, value) in annotations {
        match key.strip_prefix(OWN_CAPACITY_PREFIX) {
            Some(RESOURCES) => {
                let (resources, more) = resource_list::parse(key, value, allowed);
                problems.extend(more);
                for (resource, quantity) in resources {
                    put(&mut capacity, &resource, quantity, Source::Annotation(key.clone()));
                }
            }
            Some(name) if !KNOWN.contains(&name) => {
                let rule = format!("no such annotation is known; known are {}; it is ignored", KNOWN.join(", "));
                problems.push(Problem::annotation(ProblemKind::Capacity, key, value, &rule));
            }
            Some(_) | None => {}
        }
    }
    (capacity, problems)
}

fn allowed(resource: &str, quantity: Quantity) -> Result<(), String> {
    let other = match resource {
        CPU => "cpu",
        MEMORY => "memory",
        EPHEMERAL_STORAGE => "ephemeral-disk",
        PODS => "maxPods",
        _ if quantity.is_whole() => return Ok(()),
        _ => return Err("it must be a whole number".to_owned()),
    };
    Err(format!("{resource} is said by the annotation {CAPACITY_PREFIX}{other}"))
}
