//! Reviews of permissions by SelfSubjectAccessReviews, which need no permission themselves.

use std::time::Instant;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};

use super::clusters::{Clusters, within};
use super::needed_rights::Right;
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
