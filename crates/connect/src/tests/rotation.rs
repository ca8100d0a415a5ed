//! Tests of clients that follow their configuration while files and Secrets change.

use std::{fs, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header::AUTHORIZATION},
    response::{IntoResponse, Response},
    routing::get,
};
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use parking_lot::Mutex;
use serde_json::json;
use testkit::until;
use tokio::task::JoinHandle;

use super::kubeconfig;
use crate::{Access, Clients, ClusterRef, Source, WorkloadSource, access::Periods};

const OFTEN: Periods = Periods {
    files: Duration::from_millis(10),
    secret: Duration::from_millis(10),
    min_interval: Duration::from_millis(1),
};
/// Longer than any test runs: only a refused request causes a read.
const WHEN_REFUSED: Periods = Periods {
    files: Duration::from_secs(3600),
    secret: Duration::from_secs(3600),
    min_interval: Duration::from_millis(1),
};

/// An API server that accepts one token and has one Secret.
#[derive(Clone, Default)]
struct Cluster {
    token: Arc<Mutex<String>>,
    secret: Arc<Mutex<String>>,
}

impl Cluster {
    fn with_token(token: &str) -> Self {
        let cluster = Self::default();
        cluster.set_token(token);
        cluster
    }

    fn set_token(&self, token: &str) {
        token.clone_into(&mut self.token.lock());
    }

    fn set_secret(&self, kubeconfig: &str) {
        kubeconfig.clone_into(&mut self.secret.lock());
    }

    async fn serve(&self) -> (SocketAddr, JoinHandle<()>) {
        let router = Router::new()
            .route("/version", get(version))
            .route("/api/v1/namespaces/team-a/secrets/prod-kubeconfig", get(secret))
            .with_state(self.clone());
        testkit::serve(router).await
    }
}

async fn version(State(cluster): State<Cluster>, headers: HeaderMap) -> Response {
    let expected = format!("Bearer {}", cluster.token.lock());
    if headers.get(AUTHORIZATION).is_none_or(|given| given.as_bytes() != expected.as_bytes()) {
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401, "reason": "Unauthorized"});
        return (StatusCode::UNAUTHORIZED, status.to_string()).into_response();
    }
    let version = json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": "",
    });
    version.to_string().into_response()
}

async fn secret(State(cluster): State<Cluster>) -> Response {
    let value = ByteString(cluster.secret.lock().clone().into_bytes());
    let metadata = ObjectMeta { name: Some("prod-kubeconfig".to_owned()), ..ObjectMeta::default() };
    let secret = Secret { metadata, data: Some([("value".to_owned(), value)].into()), ..Secret::default() };
    serde_json::to_string(&secret).unwrap().into_response()
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
    let (old, new) = (Cluster::with_token("old"), Cluster::with_token("new"));
    let ((old_address, old_server), (new_address, _new_server)) = (old.serve().await, new.serve().await);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    fs::write(&path, config_of(old_address, "old")).unwrap();
    let source = Source::File(path.clone());
    let access = source.access().await.unwrap();
    let clients = access.clients().clone();
    let management = no_cluster().await;
    while_followed(&access, &WorkloadSource::Own(source), &management, OFTEN, async {
        assert!(works(&clients).await);
        fs::write(&path, config_of(new_address, "new")).unwrap();
        old_server.abort();
        until_it_works(&clients).await;
    })
    .await;
}

/// A workload cluster that is reached by the Secret in its management cluster.
struct Through {
    management: Cluster,
    workload: Cluster,
    workload_address: SocketAddr,
    of_management: Clients,
    source: WorkloadSource,
    access: Access,
}

async fn through_secret() -> Through {
    let (management, workload) = (Cluster::default(), Cluster::with_token("old"));
    // The servers run until the test's runtime ends.
    let ((management_address, _), (workload_address, _)) = (management.serve().await, workload.serve().await);
    management.set_secret(&config_of(workload_address, "old"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    fs::write(&path, config_of(management_address, "any")).unwrap();
    let of_management = Source::File(path).connect().await.unwrap();
    let source = WorkloadSource::Secret(ClusterRef::new("team-a", "prod").unwrap());
    let access = source.access_in_time(&of_management, |error| panic!("{error}")).await;
    Through { management, workload, workload_address, of_management, source, access }
}

#[tokio::test]
async fn a_token_that_is_refused_has_the_secret_read_at_once() {
    let Through { management, workload, workload_address, of_management, source, access } = through_secret().await;
    let clients = access.clients().clone();
    while_followed(&access, &source, &of_management, WHEN_REFUSED, async {
        assert!(works(&clients).await);
        workload.set_token("new");
        management.set_secret(&config_of(workload_address, "new"));
        until_it_works(&clients).await;
    })
    .await;
}

#[tokio::test]
async fn a_secret_that_may_not_be_used_leaves_the_one_in_force() {
    let Through { management, workload, workload_address, of_management, source, access } = through_secret().await;
    let clients = access.clients().clone();
    while_followed(&access, &source, &of_management, OFTEN, async {
        let runs = kubeconfig(
            &format!("{{server: 'http://{workload_address}'}}"),
            "{exec: {command: 'true', apiVersion: client.authentication.k8s.io/v1}}",
        );
        management.set_secret(&runs);
        // The next good configuration comes after the bad one was read.
        for token in ["second", "third"] {
            assert!(works(&clients).await, "the one in force still serves");
            workload.set_token(token);
            management.set_secret(&runs);
            assert!(!works(&clients).await);
            management.set_secret(&config_of(workload_address, token));
            until_it_works(&clients).await;
        }
    })
    .await;
}
