//! Tests of the prices of Nodes and resources, as groups and the price list change.

use std::{collections::HashMap, sync::Arc};

use rules::capi::{ObjectKey, PRICE_PER_HOUR};
use rules::{
    PriceList, UnitPrices,
    price::{Price, Rates},
};
use serde_json::{Value, json};

use super::objects::{capacity_annotations, deployment, id, index, joined, merge, node, set_of};
use crate::{Change, Index, NoPrice, NodeQuery};

const TEMPLATE_NODE: &str = "template-node-for-MachineDeployment/team-a/workers-1234";

fn price(per_hour: f64) -> Price {
    per_hour.try_into().unwrap()
}

fn priced(per_hour: &str) -> Value {
    json!({"metadata": {"annotations": {PRICE_PER_HOUR: per_hour}}})
}

/// Returns a MachineDeployment with this price, whose Nodes have 8 cores and 64 GiB, and so 16 parts.
fn group(name: &str, per_hour: &str) -> Change {
    let mut more = capacity_annotations("8", "64Gi");
    merge(&mut more, &priced(per_hour));
    deployment(name, 1, ("0", "9"), &more)
}

fn list(list: PriceList) -> Change {
    Change::Prices(Arc::new(list))
}

fn instance_types(prices: &[(&str, f64)]) -> PriceList {
    let instance_types = prices.iter().map(|(name, per_hour)| ((*name).into(), price(*per_hour))).collect();
    PriceList { instance_types, ..PriceList::default() }
}

/// Returns the price of a Node with this name and these labels.
fn node_price(index: &Index, name: &str, labels: &[(&str, &str)]) -> Result<f64, NoPrice> {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let provider_id = format!("cloud:///zone/{name}");
    let query = NodeQuery { name, provider_id: &provider_id, annotations: &HashMap::new() };
    index.node_price(query, &labels).map(Price::per_hour)
}

fn cpu_price(index: &Index) -> Result<f64, NoPrice> {
    index.unit_prices().map(|units| units.cpu.per_hour())
}

#[test]
fn a_node_costs_what_its_group_does() {
    let index = index([group("workers", "0.8"), set_of("workers", "workers-1"), joined("MachineSet/workers-1", "n0")]);
    assert_eq!(node_price(&index, "n0", &[]), Ok(0.8));
    assert_eq!(node_price(&index, TEMPLATE_NODE, &[]), Ok(0.8));
    index.apply(group("workers", "1.5"));
    assert_eq!(node_price(&index, "n0", &[]), Ok(1.5));
}

#[test]
fn a_group_without_a_price_among_others_is_named() {
    let index = index([group("workers", ""), group("others", "1")]);
    let workers = id("MachineDeployment/team-a/workers");
    assert_eq!(node_price(&index, TEMPLATE_NODE, &[]), Err(NoPrice::OfGroup(workers)));
    assert_eq!(node_price(&index, "stranger", &[]), Err(NoPrice::OfForeignNode));
}

#[test]
fn a_node_of_no_group_costs_what_the_list_says_of_its_labels() {
    let index = index([list(instance_types(&[("m5.large", 0.096)]))]);
    let labels = [("node.kubernetes.io/instance-type", "m5.large")];
    assert_eq!(node_price(&index, "stranger", &labels), Ok(0.096));
    assert_eq!(node_price(&index, "stranger", &[]), Err(NoPrice::OfForeignNode));
}

#[test]
fn the_instance_type_of_a_node_that_joined_prices_its_group() {
    let labels = json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": "m5.large"}}});
    let index = index([
        group("workers", ""),
        set_of("workers", "workers-1"),
        joined("MachineSet/workers-1", "n0"),
        list(instance_types(&[("m5.large", 0.8)])),
    ]);
    assert_eq!(cpu_price(&index), Err(NoPrice::Anywhere));
    index.apply(node("n0", &labels));
    assert_eq!(node_price(&index, TEMPLATE_NODE, &[]), Ok(0.8));
    assert_eq!(cpu_price(&index), Ok(0.05));
}

#[test]
fn resources_cost_what_they_do_where_they_are_cheapest() {
    let index = index([group("dear", "1.6"), group("cheap", "0.8"), group("unpriced", "")]);
    assert_eq!(cpu_price(&index), Ok(0.05));
    index.apply(group("cheap", "3.2"));
    assert_eq!(cpu_price(&index), Ok(0.1));
    index.apply(Change::ScalableGone(id("MachineDeployment/team-a/dear")));
    assert_eq!(cpu_price(&index), Ok(0.1), "a group that is gone answers until the next Refresh");
    index.refresh();
    assert_eq!(cpu_price(&index), Ok(0.2));
    index.apply(group("cheap", "none"));
    assert_eq!(cpu_price(&index), Err(NoPrice::Anywhere));
}

#[test]
fn groups_that_are_free_do_not_make_pods_free_while_others_cost_something() {
    let index = index([group("metal", "0"), group("cloud", "0.8")]);
    assert_eq!(cpu_price(&index), Ok(0.05));
    index.apply(group("cloud", ""));
    assert_eq!(cpu_price(&index), Ok(0.0));
}

#[test]
fn a_price_of_nodes_of_unknown_size_says_nothing_of_resources() {
    let index = index([deployment("workers", 1, ("0", "9"), &priced("1"))]);
    assert_eq!(node_price(&index, TEMPLATE_NODE, &[]), Ok(1.0));
    assert_eq!(cpu_price(&index), Err(NoPrice::OfResources));
}

#[test]
fn another_list_prices_all_groups_anew() {
    let rates = |cpu| PriceList {
        resources: Some(Rates { cpu: price(cpu), memory: price(0.0), gpu: None }),
        ..PriceList::default()
    };
    let index = index([group("workers", ""), group("annotated", "9"), list(rates(0.5))]);
    assert_eq!(node_price(&index, TEMPLATE_NODE, &[]), Ok(4.0));
    index.apply(list(rates(0.25)));
    assert_eq!(node_price(&index, TEMPLATE_NODE, &[]), Ok(2.0));
    assert_eq!(cpu_price(&index), Ok(0.25));
    let priced = "template-node-for-MachineDeployment/team-a/annotated-1";
    assert_eq!(node_price(&index, priced, &[]), Ok(9.0));
    assert_eq!(index.stats().priced, 2);
}

#[test]
fn unit_prices_are_made_once_after_a_change_of_a_price() {
    let index = index([group("workers", "0.8")]);
    let first: Arc<UnitPrices> = index.unit_prices().unwrap();
    let machine = ObjectKey::new("team-a", "m0");
    index.apply(Change::MachineGone(machine));
    assert!(Arc::ptr_eq(&first, &index.unit_prices().unwrap()));
}
