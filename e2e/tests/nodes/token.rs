//! The Pod's token, which a kubelet renews before it expires.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{
    helm::RELEASE,
    nodes::{POLL_INTERVAL, Testbed, create_group},
    wait::every,
};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::pod::VISIBLE_WITHIN;

/// The shortest lifetime that an API server gives a token.
const LIFETIME: Duration = Duration::from_secs(600);

pub(crate) async fn the_program_goes_on_with_the_token_that_the_kubelet_has_renewed(
    testbed: &Testbed<'_>,
) -> Result<()> {
    let group = create_group(&testbed.objects, "workers", 0).await?;
    let release = testbed.release();
    release.apply("install", &release.values()).await?;
    let patch = json!({ "spec": { "replicas": 1, "template": { "spec": {
        "automountServiceAccountToken": false,
        "volumes": [{ "name": "token", "projected": { "sources": [
            { "serviceAccountToken": { "path": "token", "expirationSeconds": LIFETIME.as_secs() } },
            { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
            { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "fieldPath": "metadata.namespace" } }] } },
        ] } }],
        "containers": [{ "name": "serve", "volumeMounts": [
            { "name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true },
        ] }],
    } } } });
    let deployments =
        Api::<k8s_openapi::api::apps::v1::Deployment>::namespaced(testbed.cluster.client(), &testbed.namespace);
    deployments.patch(RELEASE, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    let pods = release.settled().await?;
    let uid = pods.first().and_then(|pod| pod.metadata.uid.clone()).context("no Pod")?;
    let volume = format!("--chdir=/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~projected/token");
    // Only root may enter the directories, and the token belongs to the Pod's user. Root on some machines may not read
    // files of other users.
    let user = ["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups"];
    let read = || testbed.cluster.on_node(&[&["env", volume.as_str()][..], &user, &["cat", "token"]].concat());
    let first = read()?;
    let caller = release.connection().await?.caller();
    caller.shows(&[&group.id]).await?;
    caller.increase(&group.id, 1).await?;

    let reviews: Api<TokenReview> = Api::all(testbed.cluster.client());
    every(Duration::from_secs(5), "the first token expired", LIFETIME * 2, async || {
        let spec = TokenReviewSpec { token: Some(first.clone()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = reviews.create(&PostParams::default(), &review).await?.status.context("no answer")?;
        ensure!(status.authenticated != Some(true), "the first token is still valid");
        Ok(())
    })
    .await?;
    ensure!(read()? != first, "the kubelet has renewed no token");
    caller.increase(&group.id, 1).await?;
    ensure!(testbed.objects.scale("MachineDeployment", &group.name).await? == 2, "the second write is missing");
    every(POLL_INTERVAL, "a Pod that was never restarted", VISIBLE_WITHIN, async || {
        let pods = release.settled().await?;
        let statuses = pods.first().and_then(|pod| pod.status.as_ref()?.container_statuses.clone()).unwrap_or_default();
        ensure!(pods.first().and_then(|pod| pod.metadata.uid.as_ref()) == Some(&uid), "it is another Pod");
        ensure!(statuses.iter().all(|status| status.restart_count == 0), "it was restarted");
        Ok(())
    })
    .await
}
