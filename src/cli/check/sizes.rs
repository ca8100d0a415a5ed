//! The check that sizes can be written: a dry run of one size write for each kind of node group. Unlike a review of
//! permissions, admission policies and webhooks judge it too.

use std::time::Instant;

use connect::discovery::CoreResources;
use connect::{Clients, cause};
use kube::{
    Api, Error,
    api::{DynamicObject, Patch, PatchParams},
};
use rules::GroupId;
use serde_json::json;

use super::needed_rights::Breaks;
use super::{
    clusters::within,
    groups::Inspection,
    report::{CheckId, Findings},
    reviews::{AccessReview, Answer},
};

const REMEDY: &str = "let the policy or webhook that it names admit this program's user on /scale";

/// Writes the present size of a node group of each kind, as a dry run.
pub(super) async fn judge(
    findings: &mut Findings,
    (management, core): (&Clients, &CoreResources),
    (reviews, inspection): (&[AccessReview], &Inspection),
    until: Instant,
) {
    let check = CheckId::SizeWrite;
    let groups = inspection.one_of_each_kind();
    if groups.is_empty() {
        findings.skip(check, "no node group is known");
    }
    for (id, size) in groups {
        let is_denied = |review: &AccessReview| {
            let right = &review.right;
            right.breaks == Breaks::Sizes
                && right.only_for == Some(id.kind)
                && right.namespace.as_ref().is_none_or(|namespace| *namespace == *id.key.namespace)
                && matches!(review.answer, Answer::Denied(_))
        };
        if reviews.iter().any(is_denied) {
            findings.skip(check, format!("{id}: the right to write its size is missing"));
            continue;
        }
        match try_size(management, core, id, size, until).await {
            Ok(()) => findings.ok(check, id.to_string(), format!("its size of {size} was written as a dry run")),
            Err(why) if why.contains("does not support dry run") => {
                findings.skip(check, format!("{id}: a webhook can't be asked: {why}"));
            }
            Err(why) => findings.error(check, id.to_string(), format!("its size can't be written: {why}"), REMEDY),
        }
    }
}

/// Writes a size as a dry run. Returns the reason if the API server refuses it.
async fn try_size(
    management: &Clients,
    core: &CoreResources,
    id: &GroupId,
    size: i32,
    until: Instant,
) -> Result<(), String> {
    let Some(resource) = core.scalable(id.kind) else { return Err("its kind isn't served".to_owned()) };
    let api: Api<DynamicObject> = Api::namespaced_with(management.writes.clone(), &id.key.namespace, resource);
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "spec": { "replicas": size } }));
    match within(until, api.patch_scale(&id.key.name, &params, &patch)).await? {
        Ok(_) => Ok(()),
        // It has gone meanwhile.
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(cause(&error)),
    }
}
