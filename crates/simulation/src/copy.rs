//! A copy of the program without its listeners, on a host of its own.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    task::{self, Poll},
    time::Duration,
};

use anyhow::Context as _;
use app::{DRAIN, Provider, ProviderOptions};
use bytes::Bytes;
use cluster::{FleetOptions, Serve};
use connect::{ClientMaker, Clients, NodeAccess, Policy, WorkloadSource};
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use index::GroupSeries;
use prometheus_client::registry::Registry;
use proto::{
    ExternalGrpcNode, NodeGroupAutoscalingOptions, NodeGroupAutoscalingOptionsRequest, NodeGroupForNodeRequest,
    NodeGroupNodesRequest, NodeGroupTargetSizeRequest, NodeGroupTemplateNodeInfoRequest, NodeGroupsRequest,
    RefreshRequest, cloud_provider_client::CloudProviderClient, cloud_provider_server::CloudProviderServer,
};
use rules::{Grace, LabelSelector, Rules, Scope, capi::ObjectKey};
use scale::ScaleOptions;
use scale::traces::Traces;
use service::Service;
use service::listen::{Client, Connection};
use shared_informer::Settings;
use tokio::{runtime::Handle, time::timeout};
use tokio_util::task::TaskTracker;
use tower::{BoxError, ServiceExt as _};

use crate::{
    host::Host,
    ledger,
    network::{Answer, Message, Port, RpcResult},
    setup::{Place, SERVED},
    tasks::Scheduler,
};

/// Cluster Autoscaler's own limit for a call, beyond which the handler is dropped.
const DEADLINE: Duration = Duration::from_secs(5);

pub(crate) struct Copy {
    pub(crate) host: Host,
    port: Port,
    scheduler: Scheduler,
    server: CloudProviderServer<Service>,
    /// The callers of a fleet, by the number of their Cluster.
    callers: Vec<Connection>,
    provider: Provider,
    /// The calls under way.
    calls: TaskTracker,
}

/// The trust domain of a fleet's identities.
const TRUST_DOMAIN: &str = "prod.example";

/// A caller's way to the server, past the network.
#[derive(Clone)]
struct Local {
    server: CloudProviderServer<Service>,
    caller: Option<Connection>,
}

impl tower::Service<Request<tonic::body::Body>> for Local {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<tonic::body::Body>) -> Self::Future {
        if let Some(caller) = &self.caller {
            request.extensions_mut().insert(caller.clone());
        }
        self.server.call(request)
    }
}

/// Returns the connection of a Cluster's autoscaler, as its certificate gives it.
fn caller(place: Place) -> Connection {
    let uri = format!("spiffe://{TRUST_DOMAIN}/ns/{}/cluster/{}", place.namespace, place.name);
    let (name, uri) = (uri.as_str().into(), Some(uri.as_str().into()));
    Connection::of(Client { name, uri, ..Client::default() })
}

/// Returns the choice of a fleet, whose workload clusters are behind ports of their own.
fn fleet(port: &Port, places: Vec<Place>) -> Option<Serve> {
    let port = port.clone();
    let nodes = ClientMaker::new(move |cluster| {
        let is_it = |place: &Place| place.namespace == cluster.namespace() && place.name == cluster.name();
        let port = port.of_cluster(places.iter().position(is_it).unwrap_or_default());
        Clients { watches: port.workload(Policy::WATCHES), writes: port.workload(Policy::WRITES) }
    });
    let selector: LabelSelector = format!("{}={}", SERVED.0, SERVED.1).parse().ok()?;
    Some(Serve::Selected { selector, namespaces: None, nodes: NodeAccess::Made(nodes) })
}

/// Returns the options of the program, which serves one Cluster or a fleet.
fn options(name: &str, scale: ScaleOptions, serve: Serve, remember: Vec<ObjectKey>) -> anyhow::Result<ProviderOptions> {
    const MAX_STALENESS: Duration = Duration::from_secs(60);
    let rules = Rules { errors: scale.error_rules(Grace::default()), ..Rules::new(Scope::All) };
    let (trust_domain, reading) = match &serve {
        Serve::One(_) => (None, FleetOptions::of_one(rules, MAX_STALENESS)),
        Serve::Selected { .. } => {
            let reading = FleetOptions::of_many(rules, MAX_STALENESS);
            (Some(TRUST_DOMAIN.parse()?), FleetOptions { informers: Settings::default(), ..reading })
        }
    };
    Ok(ProviderOptions {
        serve,
        reading: FleetOptions { remember, ..reading },
        trust_domain,
        group_series: GroupSeries::Each,
        events: Some(name.to_owned()),
        slow_rpc: Duration::from_millis(100),
        scale,
    })
}

impl Copy {
    /// Starts a copy on a host, which serves the Clusters at these places if it is one of a fleet, and remembers Nodes in
    /// these ConfigMaps.
    pub(crate) fn start(
        host: Host,
        port: Port,
        name: &str,
        scheduler: Scheduler,
        scale: ScaleOptions,
        places: Option<&[Place]>,
        remember: Vec<ObjectKey>,
    ) -> anyhow::Result<Self> {
        let serve = match places {
            None => Serve::One(WorkloadSource::Management),
            Some(places) => fleet(&port, places.to_vec()).context("the fleet's selector")?,
        };
        let options = options(name, scale, serve, remember)?;
        let provider = host.enter(async {
            let tasks = scheduler.spawner(&Handle::current());
            let clients = Clients { watches: port.client(Policy::WATCHES), writes: port.client(Policy::WRITES) };
            Provider::start(clients, options, Traces::default(), &mut Registry::default(), &tasks)
        });
        let server = CloudProviderServer::new(provider.service.clone());
        let callers = places.into_iter().flatten().map(|place| caller(*place)).collect();
        Ok(Self { host, port, scheduler, server, callers, provider, calls: TaskTracker::new() })
    }

    /// Returns the way of a Cluster's callers to the server.
    fn local(&self, cluster: usize) -> Local {
        Local { server: self.server.clone(), caller: self.callers.get(cluster).cloned() }
    }

    /// Answers a call of a Cluster's caller on the copy's host.
    pub(crate) fn answer(&self, number: u64, cluster: usize, parts: http::request::Parts, body: Bytes) {
        let (server, port, scheduler) = (self.local(cluster), self.port.clone(), self.scheduler.clone());
        self.host.spawn(self.calls.track_future(async move {
            let request = Request::from_parts(parts, tonic::body::Body::new(Full::new(body)));
            let answered = timeout(DEADLINE, scheduler.schedule(Box::pin(server.oneshot(request)))).await;
            let result: RpcResult = match answered {
                Ok(Ok(response)) => Answer::read(response).await.map_err(BoxError::from),
                Ok(Err(never)) => match never {},
                Err(_) => Err(BoxError::from("the deadline is over")),
            };
            port.send(Message::Reply(number, result));
        }));
    }

    /// Drains the copy as `serve` does, and reports to the world whether everything ended in time.
    pub(crate) fn drain(&self) {
        let (calls, port) = (self.calls.clone(), self.port.clone());
        let provider = self.provider.clone();
        self.host.spawn(drain(calls, port, async move { provider.drain(DRAIN).await }));
    }

    /// Returns the number of groups with commands under way or with remembered state.
    pub(crate) fn lanes(&self) -> usize {
        self.provider.busy_groups()
    }

    /// Returns true if the copy answers a Cluster's caller the size of a group, without a Refresh before.
    pub(crate) fn has_group(&self, cluster: usize, id: &str) -> bool {
        let mut client = CloudProviderClient::new(self.local(cluster));
        let request = NodeGroupTargetSizeRequest { id: id.to_owned() };
        self.host.enter(async move { client.node_group_target_size(request).await.is_ok() })
    }

    /// Returns the amounts in the template of a group.
    pub(crate) fn amounts_of_template(&self, cluster: usize, id: &str) -> Option<ledger::Amounts> {
        let mut client = CloudProviderClient::new(self.local(cluster));
        let request = NodeGroupTemplateNodeInfoRequest { id: id.to_owned() };
        let answer = self.host.enter(async move { client.node_group_template_node_info(request).await }).ok()?;
        ledger::Amounts::of(&answer.into_inner())
    }

    /// Returns the copy's answers to a Cluster's reads after a Refresh: one line for each group's bounds and size, for
    /// its options,
    /// for its template if one of the `ready` Nodes (by providerID) belongs to it, and for each instance with the group
    /// of its Node. A read-only copy sends no errors and has options of its own, so both are left out unless
    /// `of_writer`. The template of a group without a ready Node is left out, since it follows the Nodes that a copy
    /// has seen.
    pub(crate) fn answers(
        &self,
        cluster: usize,
        of_writer: bool,
        ready: &BTreeSet<String>,
    ) -> Result<Vec<String>, tonic::Status> {
        let mut client = CloudProviderClient::new(self.local(cluster));
        let ready = ready.clone();
        self.host.enter(async move {
            client.refresh(RefreshRequest {}).await?;
            let mut lines = Vec::new();
            for group in client.node_groups(NodeGroupsRequest {}).await?.into_inner().node_groups {
                let id = group.id;
                let size = client.node_group_target_size(NodeGroupTargetSizeRequest { id: id.clone() }).await?;
                let size = size.into_inner().target_size;
                lines.push(format!("{id} {}..{} {size}", group.min_size, group.max_size));
                if of_writer {
                    let defaults = Some(NodeGroupAutoscalingOptions::default());
                    let request = NodeGroupAutoscalingOptionsRequest { id: id.clone(), defaults };
                    lines.push(format!("{id} options {}", text_of(client.node_group_get_options(request).await)));
                }
                let instances = client.node_group_nodes(NodeGroupNodesRequest { id: id.clone() }).await?.into_inner();
                if instances.instances.iter().any(|instance| ready.contains(&instance.id)) {
                    let request = NodeGroupTemplateNodeInfoRequest { id: id.clone() };
                    let template = text_of(client.node_group_template_node_info(request).await);
                    lines.push(format!("{id} template {template}"));
                }
                for mut instance in instances.instances {
                    if let Some(status) = instance.status.as_mut().filter(|_| !of_writer) {
                        status.error_info = None;
                    }
                    let provider_id = instance.id.clone();
                    let node = ExternalGrpcNode { provider_id, ..ExternalGrpcNode::default() };
                    let request = NodeGroupForNodeRequest { node: Some(node) };
                    let group = client.node_group_for_node(request).await?.into_inner().node_group;
                    let group = group.map(|group| group.id).unwrap_or_default();
                    lines.push(format!("{id} {} {:?} of {group:?}", ledger::lasting(&instance.id), instance.status));
                }
            }
            Ok(lines)
        })
    }
}

/// Waits for the end of commands and calls, and reports it.
async fn drain(calls: TaskTracker, port: Port, commands: impl Future<Output = Result<(), usize>>) {
    calls.close();
    let (commands, calls) = tokio::join!(commands, timeout(DRAIN, calls.wait()));
    port.send(Message::Drained(commands.is_ok() && calls.is_ok()));
}

/// Returns an answer as text: its message, or the code of its error.
fn text_of<T: std::fmt::Debug>(answer: Result<tonic::Response<T>, tonic::Status>) -> String {
    match answer {
        Ok(answer) => format!("{:?}", answer.into_inner()),
        Err(status) => format!("{:?}", status.code()),
    }
}
