//! Checks of permissions by SelfSubjectAccessReviews, which need no permission themselves.

use std::time::Instant;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};

use super::{
    clusters::{Clusters, within},
    groups::Inspection,
    needed_rights::{Breaks, Right},
    report::{CheckId, Finding, Findings, Status},
};
use connect::cause;

/// The number of concurrent reviews.
const SIDE_BY_SIDE: usize = 8;

/// A permission, and the API server's answer about it.
pub(super) struct AccessReview {
    pub(super) right: Right,
    pub(super) answer: Answer,
}

/// The API server's answer about a permission.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// It is granted.
    Allowed,
    /// It isn't granted, with the API server's reason if there is one.
    Denied(String),
    /// The review failed, with the reason.
    Unknown(String),
}

/// Reviews the permissions in the clusters that were reached.
pub(super) async fn review_all(clusters: &Clusters, rights: Vec<Right>, until: Instant) -> Vec<AccessReview> {
    let requests = rights.into_iter().filter_map(|right| Some((clusters.of(right.cluster)?.writes.clone(), right)));
    let answers = requests.map(async |(client, right)| {
        let answer = within(until, review(client, &right)).await.unwrap_or_else(Answer::Unknown);
        AccessReview { right, answer }
    });
    stream::iter(answers).buffered(SIDE_BY_SIDE).collect().await
}

async fn review(client: Client, right: &Right) -> Answer {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(right.group.clone()),
                resource: Some(right.resource.clone()),
                subresource: right.subresource.map(str::to_owned),
                verb: Some(right.verb.to_owned()),
                namespace: right.namespace.clone(),
                name: right.name.clone(),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    match Api::<SelfSubjectAccessReview>::all(client).create(&PostParams::default(), &review).await {
        Err(error) => Answer::Unknown(cause(&error)),
        Ok(reviewed) => match reviewed.status {
            Some(status) if status.allowed => Answer::Allowed,
            Some(status) => Answer::Denied(
                status.reason.or(status.evaluation_error).filter(|why| !why.is_empty()).unwrap_or_default(),
            ),
            None => Answer::Unknown("the API server's answer has no status".to_owned()),
        },
    }
}

/// Reports a finding for each permission. A missing one that no current node group needs is a warning.
pub(super) fn judge(findings: &mut Findings, reviews: &[AccessReview], inspection: Option<&Inspection>) {
    for AccessReview { right, answer } in reviews {
        let subject = format!("{} cluster", right.cluster.as_str());
        let is_needed_now = inspection.is_none_or(|inspection| inspection.needs(right));
        let (status, message, remedy) = match answer {
            Answer::Allowed => (Status::Ok, right.to_string(), None),
            Answer::Denied(why) => {
                let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
                let remedy = Some(format!("grant {}", right.rule()));
                if right.breaks.is_optional() {
                    (Status::Warn, format!("{right}: denied{why}: {}", right.breaks), remedy)
                } else if is_needed_now {
                    (Status::Error, format!("{right}: denied{why}: {}", right.breaks), remedy)
                } else {
                    let kind = right.only_for.map_or("", |kind| kind.as_str());
                    let machines = if right.breaks == Breaks::Marks { " with Machines" } else { "" };
                    let breaks = right.breaks;
                    let message = format!("{right}: denied{why}: once a {kind}{machines} is a node group: {breaks}");
                    (Status::Warn, message, remedy)
                }
            }
            Answer::Unknown(why) => {
                let remedy = "let this program's user create selfsubjectaccessreviews (system:basic-user)";
                (Status::Error, format!("{right}: can't be asked for: {why}"), Some(remedy.to_owned()))
            }
        };
        findings.0.push(Finding {
            check: CheckId::Right,
            status,
            subject,
            message,
            remedy,
            right: Some(right.clone()),
        });
    }
}
