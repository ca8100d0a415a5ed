//! Fuzzes requests of all RPCs from arbitrary bytes. The real service answers them over a small index. It can't write,
//! so a command gets as far as its first write.

use std::sync::LazyLock;

use app::service_of_index;
use prost::Message as _;
use proto::cloud_provider_server::CloudProvider as _;
use rules::capi::PRICE_PER_HOUR;
use serde_json::{Map, json};
use service::Service;
use shared_informer::Spawner;
use tokio::runtime::Runtime;
use tonic::{Code, Request};

use super::groups;

/// Calls an RPC: the first byte chooses it, the others are the request.
pub fn requests(data: &[u8]) {
    let Some((rpc, message)) = data.split_first() else { return };
    let World { runtime, service } = &*WORLD;
    runtime.block_on(answer(service, *rpc, message));
}

/// Decodes the message as a request of a method, and calls the method.
macro_rules! ask {
    ($service:ident.$method:ident($message:ident)) => {
        if let Ok(request) = <_>::decode($message) {
            match $service.$method(Request::new(request)).await {
                Ok(answer) => Some(format!("{:?}", answer.into_inner())),
                Err(status) => {
                    let meant = !matches!(status.code(), Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss);
                    assert!(meant && !status.message().is_empty(), "{}: {status}", stringify!($method));
                    None
                }
            }
        } else {
            Some(String::new())
        }
    };
}

async fn answer(service: &Service, rpc: u8, message: &[u8]) {
    let answered = match rpc % 15 {
        0 => ask!(service.node_groups(message)),
        1 => ask!(service.node_group_for_node(message)),
        2 => ask!(service.pricing_node_price(message)),
        3 => ask!(service.pricing_pod_price(message)),
        4 => ask!(service.gpu_label(message)),
        5 => ask!(service.get_available_gpu_types(message)),
        6 => ask!(service.cleanup(message)),
        7 => ask!(service.refresh(message)),
        8 => ask!(service.node_group_target_size(message)),
        9 => ask!(service.node_group_increase_size(message)),
        10 => ask!(service.node_group_delete_nodes(message)),
        11 => ask!(service.node_group_decrease_target_size(message)),
        12 => ask!(service.node_group_nodes(message)),
        13 => ask!(service.node_group_template_node_info(message)),
        _ => ask!(service.node_group_get_options(message)),
    };
    // An error of these RPCs would end the caller's whole loop.
    assert!(answered.is_some() || !matches!(rpc % 15, 0 | 1 | 4..=7));
    let priced = answered.as_deref().filter(|_| matches!(rpc % 15, 2 | 3)).and_then(|text| text.split_once("price: "));
    if let Some((_, price)) = priced {
        let price: f64 = price.trim_end_matches([' ', '}']).parse().expect("a price is a number");
        assert!(price.is_finite() && price.is_sign_positive(), "{price}");
    }
}

struct World {
    runtime: Runtime,
    service: Service,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let index = groups::index();
    let annotations = [
        ("cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size", "1"),
        ("cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size", "10"),
        ("cluster.x-k8s.io/autoscaling-options-scaledownunneededtime", "10m"),
        ("capacity.cluster-autoscaler.kubernetes.io/cpu", "8"),
        ("capacity.cluster-autoscaler.kubernetes.io/memory", "64Gi"),
        (PRICE_PER_HOUR, "0.8"),
    ];
    let annotations: Map<_, _> = annotations.map(|(key, value)| (key.to_owned(), json!(value))).into_iter().collect();
    index.apply_and_take_notices(groups::group(&annotations));
    index.refresh();
    let service = {
        let _context = runtime.enter();
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        let client = kube::Client::try_from(nowhere).expect("a client");
        service_of_index(index, client, &Spawner::from(runtime.handle()))
    };
    World { runtime, service }
});
