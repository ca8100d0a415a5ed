//! Tests of a router over real informers: Clusters are opted in while objects change.

use std::{collections::HashSet, sync::Arc};

use kube::core::{ApiResource, GroupVersionKind};
use rules::capi::{Cluster, Machine, ScalableKind, ScalableResource};
use serde_json::{Value, json};
use shared_informer::{Factory, Namespaces, ObjectKey, Projection, Query, Registration, Settings};
use testkit::Wait;
use tokio::runtime::Handle;

use super::{fake::*, scalable};
use index::{Feed, Index, Routed, RoutedKind, Router, objects};

/// The feeds of a router.
struct Feeds {
    router: Arc<Router>,
    factory: Factory,
    clusters: Registration<Cluster>,
    deployments: Registration<ScalableResource>,
    machines: Registration<Machine>,
}

const KINDS: [RoutedKind; 3] =
    [RoutedKind::Cluster, RoutedKind::Scalable(ScalableKind::MachineDeployment), RoutedKind::Machine];

fn feed<T: Routed>(
    factory: &Factory,
    kind: &str,
    projection: Projection<T>,
    (router, of): (&Arc<Router>, T::Kind),
) -> Registration<T> {
    let plural = format!("{}s", kind.to_lowercase());
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(CAPI, "v1beta2", kind), &plural);
    let query = Query { resource, namespaces: Namespaces::All, labels: None, fields: None };
    let feed = Feed::new(Arc::clone(router), of, HashSet::new());
    factory.informer(query, projection).add_handler(feed)
}

impl Feeds {
    async fn synced(api: &FakeApi) -> Self {
        let factory = Factory::new(api.clients().watches, Handle::current(), Settings::default());
        let context = rules::capi::Context::new(CAPI);
        let router = Arc::new(Router::default());
        let kind = ScalableKind::MachineDeployment;
        let feeds = Self {
            clusters: feed(&factory, "Cluster", Cluster::projection(), (&router, ())),
            deployments: feed(&factory, kind.as_str(), ScalableResource::projection(kind, &context), (&router, kind)),
            machines: feed(&factory, "Machine", Machine::projection(&context), (&router, ())),
            router,
            factory,
        };
        feeds.clusters.synced().await;
        feeds.deployments.synced().await;
        feeds.machines.synced().await;
        feeds
    }

    /// Opts a Cluster in, without waiting for its objects.
    fn opt_in(&self, cluster: &ObjectKey) -> Arc<Index> {
        fn replay<T: Routed>(registration: &Registration<T>, cluster: &ObjectKey, mark: u64) {
            let namespace = Some(cluster.namespace.as_str());
            registration.replay(namespace, mark, |object| T::tag_of(object).may_be(&cluster.name));
        }
        let index = Arc::new(Index::new(objects::rules()));
        let mark = self.router.insert(cluster, Arc::clone(&index), KINDS).unwrap();
        replay(&self.clusters, cluster, mark);
        replay(&self.deployments, cluster, mark);
        replay(&self.machines, cluster, mark);
        index
    }

    async fn filled(&self, cluster: &ObjectKey) {
        Wait::new("the marks").within(PATIENCE).condition(|| self.router.is_filled(cluster)).await;
    }
}

fn groups(index: &Index) -> Vec<String> {
    index.refresh();
    index.groups().iter().map(|group| group.text.to_string()).collect()
}

fn of_cluster(name: &str) -> Value {
    json!({"spec": {"clusterName": name}})
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_opted_in_has_its_objects_at_the_mark_and_their_news_after_it() {
    const STAGE_WORKERS: &str = "MachineDeployment/team-a/workers";
    let api = FakeApi::with_capi();
    for name in ["stage", "other"] {
        api.put("clusters", name, &json!({}));
    }
    api.put("machinedeployments", "workers", &scalable(&of_cluster("stage")));
    api.put("machinedeployments", "others", &scalable(&of_cluster("other")));
    api.put_in("team-b", "machinedeployments", "foreign", &scalable(&of_cluster("stage")));
    for n in 0..500 {
        api.put("machines", &format!("m{n}"), &of_cluster(if n % 2 == 0 { "stage" } else { "other" }));
    }
    let feeds = Feeds::synced(&api).await;
    let (stage, other) = (ObjectKey::new(NAMESPACE, "stage"), ObjectKey::new(NAMESPACE, "other"));

    let of_stage = feeds.opt_in(&stage);
    assert!(!feeds.router.is_filled(&stage));
    feeds.filled(&stage).await;
    assert_eq!(groups(&of_stage), [STAGE_WORKERS]);
    assert_eq!(of_stage.stats().machines, 250);

    let of_other = feeds.opt_in(&other);
    api.put("machinedeployments", "workers", &scalable(&of_cluster("other")));
    api.delete("machines", "m0");
    api.delete("machines", "m1");
    feeds.filled(&other).await;
    let settled = || groups(&of_stage).is_empty() && groups(&of_other).len() == 2;
    Wait::new("the move").within(PATIENCE).condition(settled).await;
    let counted = || (of_stage.stats().machines, of_other.stats().machines) == (249, 249);
    Wait::new("the deletions").within(PATIENCE).condition(counted).await;

    feeds.router.remove(&stage);
    api.put("machines", "late", &of_cluster("stage"));
    api.put("machines", "later", &of_cluster("other"));
    Wait::new("the last Machine").within(PATIENCE).condition(|| of_other.stats().machines == 250).await;
    assert_eq!(of_stage.stats().machines, 249, "it was opted out");
    feeds.factory.shutdown().await;
}
