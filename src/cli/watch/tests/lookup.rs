//! Tests of the resource that a name means.

use super::*;
use change_stream::watch::{Catalog, NotFound, ResourceRef};
use connect::Source;

/// Starts a server with two groups of the same plural, two versions, and a name that is a short one elsewhere.
async fn served() -> Fake {
    Fake::start(vec![
        definition("shop.io", "Widget", &["wd"], &["v1beta1", "v1"]),
        definition(CAPI, "Cluster", &["cl"], &["v1beta2"]),
        definition("management.example.io", "Cluster", &[], &["v3"]),
        definition("example.io", "Po", &[], &["v1"]),
    ])
    .await
}

async fn catalog(fake: &Fake) -> Catalog {
    let clients = Source::File(fake.kubeconfig().into()).connect().await.unwrap();
    Catalog::discover(&clients.writes).await.unwrap()
}

#[rstest::rstest]
#[case::plural("pods", Some("pods v1"))]
#[case::singular("pod", Some("pods v1"))]
#[case::kind("Pod", Some("pods v1"))]
#[case::any_case("PODS", Some("pods v1"))]
#[case::short("wd", Some("widgets.shop.io v1"))]
#[case::group("widgets.shop.io", Some("widgets.shop.io v1"))]
#[case::kind_and_group("Widget.shop.io", Some("widgets.shop.io v1"))]
#[case::short_and_group("wd.shop.io", Some("widgets.shop.io v1"))]
#[case::version_and_group("widgets.v1beta1.shop.io", Some("widgets.shop.io v1beta1"))]
#[case::version_of_the_core_group("nodes.v1", Some("nodes v1"))]
#[case::another_version("widgets.v2.shop.io", None)]
#[case::group_with_dots("cluster.management.example.io", Some("clusters.management.example.io v3"))]
#[case::the_first_of_two("clusters", Some("clusters.cluster.x-k8s.io v1beta2"))]
#[case::a_name_wins_over_a_short_one("po", Some("pos.example.io v1"))]
#[case::subresource("pods/status", None)]
#[case::unknown("things", None)]
#[tokio::test(flavor = "multi_thread")]
async fn a_name_means_what_discovery_says(#[case] name: &str, #[case] expected: Option<&str>) {
    let fake = served().await;
    let catalog = catalog(&fake).await;
    let found = catalog.find(&ResourceRef::Name(name.into())).ok();
    let found = found.map(|resource| format!("{} {}", resource.name(), resource.kind.version));
    assert_eq!(found.as_deref(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_without_the_watch_verb_is_reported_as_not_watchable() {
    let found = catalog(&served().await).await;
    let error = found.find(&ResourceRef::Name("selfsubjectaccessreviews".into())).unwrap_err();
    assert_eq!(error, NotFound::NotWatchable("selfsubjectaccessreviews.authorization.k8s.io".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn others_of_the_same_name_are_known() {
    let catalog = catalog(&served().await).await;
    let by = ResourceRef::Name("clusters".into());
    assert_eq!(catalog.others(&by, catalog.find(&by).unwrap()), ["clusters.management.example.io"]);
    let by = ResourceRef::Name("clusters.cluster.x-k8s.io".into());
    assert_eq!(catalog.others(&by, catalog.find(&by).unwrap()), Vec::<String>::new());
}
