//! Tests of clients that follow their configuration while files and Secrets change.

use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use k8s_openapi::ByteString;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use sandbox::{
    api::{Api, Resource},
    clock::Clock,
    faults::{Fault, FaultHandle},
    http::ApiServer,
};
use serde_json::json;
use testkit::until;
use tokio::time::sleep;
use tower::{BoxError, service_fn};

use super::kubeconfig;
use crate::{Access, Clients, Pace, SecretRef, Source, WorkloadSource, rotation::Periods};

const OFTEN: Periods = Periods {
    files: Duration::from_millis(10),
    secret: Some(Duration::from_millis(10)),
    min_interval: Duration::from_millis(1),
};
/// Longer than any test runs: only a refused request causes a read.
const WHEN_REFUSED: Periods = Periods {
    files: Duration::from_secs(3600),
    secret: Some(Duration::from_secs(3600)),
    min_interval: Duration::from_millis(1),
};

/// An API server that accepts one token for its version, and any for its one Secret.
struct Cluster {
    server: ApiServer,
    refusal: Mutex<Option<FaultHandle>>,
}

impl Cluster {
    async fn start() -> Self {
        let api = Api::new(Clock::real());
        api.create(&Resource::core("namespaces"), json!({"metadata": {"name": "team-a"}})).unwrap();
        Self { server: ApiServer::start(api).await.unwrap(), refusal: Mutex::default() }
    }

    async fn with_token(token: &str) -> Self {
        let cluster = Self::start().await;
        cluster.set_token(token);
        cluster
    }

    fn set_token(&self, token: &str) {
        let refusal = Fault::refuse(401, "Unauthorized", "Unauthorized").on_path("^/version$").unwrap();
        let refusal = self.server.faults().add(refusal.without_token(token));
        if let Some(old) = self.refusal.lock().replace(refusal) {
            old.remove();
        }
    }

    fn set_secret(&self, kubeconfig: &str) {
        let (secrets, api) = (Resource::core("secrets"), self.server.api());
        let value = ByteString(kubeconfig.as_bytes().to_owned());
        let metadata = json!({"namespace": "team-a", "name": "prod-kubeconfig"});
        let secret = json!({"metadata": metadata, "data": {"value": value}});
        match api.get(&secrets, "team-a", "prod-kubeconfig") {
            Ok(_) => api.update(&secrets, secret).unwrap(),
            Err(_) => api.create(&secrets, secret).unwrap(),
        };
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }
}

fn config_of(address: SocketAddr, token: &str) -> String {
    kubeconfig(&format!("{{server: 'http://{address}'}}"), &format!("{{token: {token}}}"))
}

async fn works(clients: &Clients) -> bool {
    let both = tokio::join!(clients.writes.apiserver_version(), clients.watches.apiserver_version());
    both.0.is_ok() && both.1.is_ok()
}

async fn until_it_works(clients: &Clients) {
    until("it works again", async || works(clients).await.then_some(())).await;
}

/// Runs `story` while the configuration is followed.
async fn while_followed(
    access: &Access,
    source: &WorkloadSource,
    management: &Clients,
    periods: Periods,
    story: impl Future<Output = ()>,
) {
    tokio::select! {
        () = access.follow_every(source, management, periods) => panic!("it follows for ever"),
        () = story => {}
    }
}

async fn no_cluster() -> Clients {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    fs::write(&path, config_of("127.0.0.1:1".parse().unwrap(), "none")).unwrap();
    Source::File(path).connect().await.unwrap()
}

#[tokio::test]
async fn a_kubeconfig_file_that_names_another_server_and_token_is_followed() {
    let (old, new) = (Cluster::with_token("old").await, Cluster::with_token("new").await);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    fs::write(&path, config_of(old.address(), "old")).unwrap();
    let source = Source::File(path.clone());
    let access = source.access().await.unwrap();
    let clients = access.clients();
    let management = no_cluster().await;
    while_followed(&access, &WorkloadSource::Own(source), &management, OFTEN, async {
        assert!(works(&clients).await);
        fs::write(&path, config_of(new.address(), "new")).unwrap();
        old.server.shutdown().await;
        until_it_works(&clients).await;
    })
    .await;
}

/// A workload cluster that is reached by the Secret in its management cluster.
struct Through {
    management: Cluster,
    workload: Cluster,
    of_management: Clients,
    source: WorkloadSource,
    access: Access,
}

async fn through_secret() -> Through {
    let (management, workload) = (Cluster::start().await, Cluster::with_token("old").await);
    management.set_secret(&config_of(workload.address(), "old"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    fs::write(&path, config_of(management.address(), "any")).unwrap();
    let of_management = Source::File(path).connect().await.unwrap();
    let source = WorkloadSource::Secret(SecretRef::of(&super::prod()));
    let (access, _) = source.access_in_time(&of_management, &Pace::default(), |error| panic!("{error}")).await;
    Through { management, workload, of_management, source, access }
}

#[tokio::test]
async fn a_token_that_is_refused_has_the_secret_read_at_once() {
    let Through { management, workload, of_management, source, access } = through_secret().await;
    let clients = access.clients();
    while_followed(&access, &source, &of_management, WHEN_REFUSED, async {
        assert!(works(&clients).await);
        workload.set_token("new");
        management.set_secret(&config_of(workload.address(), "new"));
        until_it_works(&clients).await;
    })
    .await;
}

#[tokio::test]
async fn a_secret_that_may_not_be_used_leaves_the_one_in_force() {
    let Through { management, workload, of_management, source, access } = through_secret().await;
    let clients = access.clients();
    while_followed(&access, &source, &of_management, OFTEN, async {
        let runs = kubeconfig(
            &format!("{{server: '{}'}}", workload.server.url()),
            "{exec: {command: 'true', apiVersion: client.authentication.k8s.io/v1}}",
        );
        management.set_secret(&runs);
        // The next good configuration comes after the bad one was read.
        for token in ["second", "third"] {
            assert!(works(&clients).await, "the one in force still serves");
            workload.set_token(token);
            management.set_secret(&runs);
            assert!(!works(&clients).await);
            management.set_secret(&config_of(workload.address(), token));
            until_it_works(&clients).await;
        }
    })
    .await;
}

/// Returns clients of a management cluster that has one Secret, of a workload cluster that is reached without a token,
/// and counts its reads.
fn counting(reads: &Arc<AtomicUsize>) -> Clients {
    let value = ByteString(kubeconfig("{server: 'http://127.0.0.1:1'}", "{}").into_bytes());
    let secret = json!({"metadata": {"name": "prod-kubeconfig"}, "data": {"value": value}}).to_string();
    let reads = Arc::clone(reads);
    let service = service_fn(move |_: Request<Body>| {
        reads.fetch_add(1, Ordering::Relaxed);
        let answer = Response::new(Body::from(secret.clone().into_bytes()));
        async move { Ok::<_, BoxError>(answer) }
    });
    let client = Client::new(service, "default");
    Clients { watches: client.clone(), writes: client }
}

#[tokio::test(start_paused = true)]
async fn the_secret_of_one_of_many_is_read_each_minute_while_its_cluster_cannot_be_read() {
    let (reads, works) = (Arc::<AtomicUsize>::default(), AtomicBool::new(true));
    let (management, pace) = (counting(&reads), Pace::of_many());
    let source = WorkloadSource::Secret(SecretRef::of(&super::prod()));
    let (access, connecting) = source.access_in_time(&management, &pace, |error| panic!("{error}")).await;
    drop(connecting);
    let reads = || reads.load(Ordering::Relaxed);
    let story = async {
        sleep(Duration::from_secs(470)).await;
        assert_eq!(reads(), 1, "seldom while it works");
        works.store(false, Ordering::Relaxed);
        sleep(Duration::from_secs(300)).await;
        assert!((5..=8).contains(&reads()), "{}", reads());
        works.store(true, Ordering::Relaxed);
        let before = reads();
        sleep(Duration::from_secs(400)).await;
        assert_eq!(reads(), before, "it works again");
    };
    tokio::select! {
        () = access.follow_workload(&source, &management, &pace, || works.load(Ordering::Relaxed)) => panic!("it ends"),
        () = story => {}
    }
}
