//! The program under test, called as Cluster Autoscaler calls it.

use std::ops::Deref;

use anyhow::{Context, Result, ensure};
use k8s_pb::api::core::v1::Node;
use kube::{Client, Config, client::Body};
use prost::Message as _;
use sandbox::autoscaler::DEADLINE;
pub use sandbox::autoscaler::{ask, made_up_node};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use crate::{
    control_plane::http_get,
    process::Process,
    proto::{ExternalGrpcNode, cloud_provider_client::CloudProviderClient},
    wait::{Permanent, SOON, eventually},
};

/// A running program with clients. Dropping it kills it.
pub struct Provider {
    /// The process, for signals.
    pub process: Process,
    grpc: u16,
    caller: Caller,
    http: Client,
    admin: Client,
}

/// A connection to a provider.
#[derive(Clone, Debug)]
pub struct Caller {
    channel: Channel,
    caller: sandbox::autoscaler::Caller,
}

impl Deref for Caller {
    type Target = sandbox::autoscaler::Caller;

    fn deref(&self) -> &sandbox::autoscaler::Caller {
        &self.caller
    }
}

impl Deref for Provider {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

impl Provider {
    /// Connects to a program that listens on these ports, or will soon.
    pub(crate) fn new(process: Process, grpc: u16, http: u16, admin: u16) -> Result<Self> {
        let caller = Caller::to(&format!("127.0.0.1:{grpc}"))?;
        Ok(Self { process, grpc, caller, http: http_client(http)?, admin: http_client(admin)? })
    }

    /// Replaces the connection to its gRPC port.
    pub(crate) fn called_by(self, channel: impl FnOnce(u16) -> Channel) -> Self {
        Self { caller: Caller::by(channel(self.grpc)), ..self }
    }

    /// Returns another kind of connection to its gRPC port.
    pub(crate) fn also_called_by(&self, channel: impl FnOnce(u16) -> Channel) -> Caller {
        Caller::by(channel(self.grpc))
    }

    /// Returns its gRPC port.
    pub fn port(&self) -> u16 {
        self.grpc
    }

    /// Waits until `/readyz` reports that it is ready.
    pub async fn ready(&mut self) -> Result<()> {
        eventually("program ready", SOON, async || {
            self.process.still_running()?;
            let (status, body) = self.http("/readyz?verbose").await?;
            ensure!(status == 200, "/readyz answers {status}:\n{body}");
            Ok(())
        })
        .await
    }

    /// Returns the status code and body of one of its pages.
    pub async fn http(&self, path: &str) -> Result<(u16, String)> {
        get(&self.http, path).await
    }

    /// The same for its admin listener.
    pub async fn admin(&self, path: &str) -> Result<(u16, String)> {
        get(&self.admin, path).await
    }
}

fn http_client(port: u16) -> Result<Client> {
    let mut config = Config::new(format!("http://127.0.0.1:{port}").parse()?);
    config.default_retry = false;
    config.connect_timeout = Some(DEADLINE);
    config.read_timeout = Some(DEADLINE);
    Ok(Client::try_from(config)?)
}

/// Returns the status code and body of a page of any server on this machine.
pub async fn page(port: u16, path: &str) -> Result<(u16, String)> {
    get(&http_client(port)?, path).await
}

async fn get(client: &Client, path: &str) -> Result<(u16, String)> {
    let answer = client.send(http_get(path)?.map(Body::from)).await?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await?;
    Ok((status, String::from_utf8(body.to_vec())?))
}

impl Caller {
    /// Connects to an address such as `127.0.0.1:1234`, lazily at the first call.
    pub fn to(address: &str) -> Result<Self> {
        Ok(Self::by(Endpoint::from_shared(format!("http://{address}"))?.timeout(DEADLINE).connect_lazy()))
    }

    /// Calls over a channel of any kind.
    pub fn by(channel: Channel) -> Self {
        let caller = sandbox::autoscaler::Caller::new(channel.clone());
        Self { channel, caller }
    }

    /// Returns the channel.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Returns a client for calls that no method here covers.
    pub fn client(&self) -> CloudProviderClient<Channel> {
        CloudProviderClient::new(self.channel())
    }

    /// Calls Refresh, and returns the ids of `NodeGroups` in order.
    pub async fn refreshed_ids(&self) -> Result<Vec<String>, Status> {
        self.refresh().await?;
        let groups = self.groups().await?;
        Ok(groups.into_iter().map(|group| group.id).collect())
    }

    /// Returns the Node of a group's template.
    pub async fn template_node(&self, id: &str) -> Result<Node> {
        Ok(Node::decode(self.template(id).await?.node_bytes)?)
    }

    /// Waits until Refresh leads to exactly these groups. Recent writes take a moment to become visible.
    pub async fn shows(&self, ids: &[&str]) -> Result<()> {
        let mut expected: Vec<&str> = ids.to_vec();
        expected.sort_unstable();
        eventually("groups", SOON, async || {
            let ids = self.refreshed_ids().await?;
            ensure!(ids == expected, "groups are {ids:?}, expected {expected:?}");
            Ok(())
        })
        .await
    }

    /// Repeats `NodeGroupDeleteNodes` like an autoscaler over several loops: after a time-out, or an answer that asks
    /// for a retry.
    pub async fn delete_with_retries(&self, id: &str, nodes: &[ExternalGrpcNode]) -> Result<()> {
        eventually(&format!("delete in {id}"), 2 * SOON, async || {
            self.delete(id, nodes).await.map_err(|status| match status.code() {
                Code::Cancelled | Code::DeadlineExceeded | Code::Aborted | Code::Unavailable => status.into(),
                _ => Permanent(status.to_string()).into(),
            })
        })
        .await
    }
}

/// Fails unless the call was refused with this code, and with a message that contains each of these words.
pub fn assert_refused<T>(answer: Result<T, Status>, code: Code, says: &[&str]) -> Result<()> {
    let status = answer.err().context("the call was not refused")?;
    ensure!(status.code() == code, "refused with {:?} ({}), expected {code:?}", status.code(), status.message());
    for word in says {
        ensure!(status.message().contains(word), "the refusal does not say {word:?}: {}", status.message());
    }
    Ok(())
}
