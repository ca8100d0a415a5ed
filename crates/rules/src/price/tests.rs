//! Tests of the source of a price, of its overrides, and of the split of a whole Node's price.

use std::collections::BTreeMap;

use crate::capi::InfrastructureTemplate;
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::{
    Quantity, Requests, TemplateRules, template,
    testing::{assert_names, deployment, infrastructure, node},
};

fn price(per_hour: f64) -> Price {
    per_hour.try_into().unwrap()
}

fn rates(cpu: f64, memory: f64, gpu: Option<f64>) -> Rates {
    Rates { cpu: price(cpu), memory: price(memory), gpu: gpu.map(price) }
}

fn rule(text: &str, tariff: Tariff) -> PriceRule {
    let (key, value) = text.split_once('=').unwrap();
    let selector = [(key.to_owned(), value.to_owned())].into_iter().collect();
    PriceRule { text: text.into(), selector, tariff }
}

/// Returns a list with a price for every Node that [`evaluated`] can make.
fn list() -> PriceList {
    PriceList {
        selectors: vec![
            rule("node.cluster.x-k8s.io/lifecycle=spot", Tariff::Whole(price(0.03))),
            rule("kubernetes.io/arch=arm64", Tariff::Resources(rates(0.01, 0.001, None))),
        ],
        instance_types: BTreeMap::from([("m5.large".into(), price(0.096))]),
        resources: Some(rates(0.04, 0.005, Some(1.0))),
    }
}

/// Returns the price by `list` of a group with this annotation, these labels and this `status.capacity`.
fn evaluated(
    annotation: Option<&str>,
    labels: &str,
    capacity: &[(&str, &str)],
    list: &PriceList,
) -> (Option<GroupPrice>, Vec<Problem>) {
    let mut group = deployment("workers");
    if let Some(text) = annotation {
        group.annotations.insert(PRICE_PER_HOUR.into(), text.into());
    }
    group.annotations.insert("capacity.cluster-autoscaler.kubernetes.io/labels".into(), labels.into());
    let known: InfrastructureTemplate = infrastructure(capacity);
    let built = template::build(&group, Some(&known), RealNodes::default(), &TemplateRules::default());
    of_group(&group, built.template.as_ref(), RealNodes::default(), list)
}

/// 2 cores and 8 GiB, which cost 0.12 by resources.
const SMALL: &[(&str, &str)] = &[("cpu", "2"), ("memory", "8Gi")];
const GPU: &[(&str, &str)] = &[("cpu", "2"), ("memory", "8Gi"), ("nvidia.com/gpu", "1")];

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-9 * left.abs().max(right.abs()).max(1e-9)
}

#[rstest]
#[case("0", 0.0)]
#[case("1", 1.0)]
#[case("0.096", 0.096)]
#[case("0000.50", 0.5)]
#[case("1000000000", 1e9)]
#[case::finer_than_any_number("0.00000000000000000000000000000000000001", 1e-38)]
fn a_plain_decimal_is_a_price(#[case] text: &str, #[case] per_hour: f64) {
    assert_eq!(text.parse(), Ok(price(per_hour)));
}

#[rstest]
#[case("", PriceError::NotPlain)]
#[case(".5", PriceError::NotPlain)]
#[case("5.", PriceError::NotPlain)]
#[case("+1", PriceError::NotPlain)]
#[case("1e3", PriceError::NotPlain)]
#[case("0,096", PriceError::NotPlain)]
#[case("0.096 USD", PriceError::NotPlain)]
#[case("$1", PriceError::NotPlain)]
#[case("NaN", PriceError::NotPlain)]
#[case("inf", PriceError::NotPlain)]
#[case("0x10", PriceError::NotPlain)]
#[case("1_000", PriceError::NotPlain)]
#[case::other_digits("١", PriceError::NotPlain)]
#[case("--1", PriceError::NotPlain)]
#[case("-0.1", PriceError::Negative)]
#[case("1000000000.1", PriceError::TooLarge)]
fn anything_else_is_none(#[case] text: &str, #[case] expected: PriceError) {
    assert_eq!(text.parse::<Price>(), Err(expected));
}

#[test]
fn more_digits_than_a_number_holds_are_too_much() {
    assert_eq!("9".repeat(400).parse::<Price>(), Err(PriceError::TooLarge));
    assert_eq!(format!("0.{}1", "0".repeat(400)).parse(), Ok(price(0.0)));
}

#[rstest]
#[case(f64::NAN, PriceError::NotFinite)]
#[case(f64::INFINITY, PriceError::NotFinite)]
#[case(f64::NEG_INFINITY, PriceError::NotFinite)]
#[case(-1e-300, PriceError::Negative)]
#[case(1.1e9, PriceError::TooLarge)]
fn not_every_number_is_a_price(#[case] number: f64, #[case] expected: PriceError) {
    assert_eq!(Price::try_from(number), Err(expected));
}

#[test]
fn the_two_zeros_are_one_price() {
    assert_eq!(price(-0.0).cmp(&price(0.0)), std::cmp::Ordering::Equal);
}

#[rstest]
#[case::an_annotation_over_all(
    Some("0.5"), "node.cluster.x-k8s.io/lifecycle=spot,node.kubernetes.io/instance-type=m5.large", SMALL,
    &[
        "0.5 annotation capacity.capi-autoscaler-provider.io/price-per-hour",
        "0.03 price file, selector node.cluster.x-k8s.io/lifecycle=spot",
        "0.096 price file, instance type m5.large",
        "0.12 price file, resources",
    ]
)]
#[case::the_first_selector_that_fits(
    None, "node.cluster.x-k8s.io/lifecycle=spot,kubernetes.io/arch=arm64", SMALL,
    &["0.03 price file, selector node.cluster.x-k8s.io/lifecycle=spot", "0.12 price file, resources"]
)]
#[case::a_selector_with_rates(
    None, "kubernetes.io/arch=arm64", SMALL,
    &["0.028 price file, selector kubernetes.io/arch=arm64", "0.12 price file, resources"]
)]
#[case::an_instance_type(
    None, "node.kubernetes.io/instance-type=m5.large", SMALL,
    &["0.096 price file, instance type m5.large", "0.12 price file, resources"]
)]
#[case::an_instance_type_by_its_old_label(
    None, "beta.kubernetes.io/instance-type=m5.large", SMALL,
    &["0.096 price file, instance type m5.large", "0.12 price file, resources"]
)]
#[case::an_instance_type_that_is_not_listed(
    None, "node.kubernetes.io/instance-type=m5.huge", SMALL, &["0.12 price file, resources"]
)]
#[case::resources_alone(None, "", SMALL, &["0.12 price file, resources"])]
#[case::resources_with_a_gpu(None, "", GPU, &["1.12 price file, resources"])]
#[case::rates_without_one_for_its_gpu(None, "kubernetes.io/arch=arm64", GPU, &["1.12 price file, resources"])]
#[case::an_empty_annotation_says_nothing(Some(""), "", SMALL, &["0.12 price file, resources"])]
#[case::space_around_an_annotation(
    Some(" 1 "), "", SMALL,
    &["1 annotation capacity.capi-autoscaler-provider.io/price-per-hour", "0.12 price file, resources"]
)]
fn the_strongest_price_counts_and_the_others_are_reported(
    #[case] annotation: Option<&str>,
    #[case] labels: &str,
    #[case] capacity: &[(&str, &str)],
    #[case] expected: &[&str],
) {
    let (found, problems) = evaluated(annotation, labels, capacity, &list());
    assert_eq!(problems, []);
    let found = found.unwrap();
    let Sourced { value, source, overrode } = found.price;
    let listed = std::iter::once(Stated { value, source }).chain(overrode);
    let listed: Vec<_> = listed.map(|offer| format!("{:.3} {}", offer.value.per_hour(), offer.source)).collect();
    let pad = |text: &&str| {
        let (price, source) = text.split_once(' ').unwrap();
        format!("{:.3} {source}", price.parse::<f64>().unwrap())
    };
    assert_eq!(listed, expected.iter().map(pad).collect::<Vec<_>>());
}

#[test]
fn without_an_annotation_and_a_list_there_is_no_price() {
    assert_eq!(evaluated(None, "", SMALL, &PriceList::default()), (None, Vec::new()));
}

#[test]
fn a_bad_annotation_is_reported_and_the_list_counts() {
    let (found, problems) = evaluated(Some("0.096 USD"), "", SMALL, &list());
    assert_eq!(found.unwrap().price.source, Source::PriceFile(PriceEntry::Resources));
    assert_names(&problems, ProblemKind::Price, &[PRICE_PER_HOUR, "\"0.096 USD\"", "plain decimal number", "ignored"]);
}

#[test]
fn without_a_template_the_labels_of_a_real_node_lead_to_its_price() {
    let group = deployment("workers");
    let sample = node(&[("node.kubernetes.io/instance-type", "m5.large")]);
    let mut observed = ObservedLabels::default();
    observed.observe(&sample);
    let nodes = RealNodes { observed: Some(&observed), ..RealNodes::default() };
    let (found, _) = of_group(&group, None, nodes, &list());
    let found = found.unwrap();
    let source = Source::PriceFile(PriceEntry::InstanceType("m5.large".into()));
    assert_eq!((found.price, found.units), (Sourced::new(price(0.096), source), None));
}

#[test]
fn a_price_by_resources_leaves_the_rates_as_they_are() {
    let units = evaluated(None, "", GPU, &list()).0.unwrap().units.unwrap();
    assert_eq!((units.cpu, units.memory), (price(0.04), price(0.005)));
    assert_eq!(units.gpus, BTreeMap::from([("nvidia.com/gpu".to_owned(), price(1.0))]));
}

/// Returns the unit prices of a Node that costs 1 in total, split by these rates of the list.
fn split(capacity: &[(&str, &str)], of_list: Option<Rates>) -> UnitPrices {
    let list = PriceList { resources: of_list, ..PriceList::default() };
    evaluated(Some("1"), "", capacity, &list).0.unwrap().units.unwrap()
}

#[rstest]
// Weights: cores 2, memory 8/8, a GPU 20.
#[case::by_the_usual_weights(SMALL, None, 1.0 / 3.0, 1.0 / 24.0, None)]
#[case::with_a_gpu(GPU, None, 1.0 / 23.0, 1.0 / 184.0, Some(20.0 / 23.0))]
// Weights: cores 2 * 3, memory 8 * 1, a GPU 6.
#[case::by_the_ratio_of_the_rates(SMALL, Some((3.0, 1.0, Some(6.0))), 3.0 / 14.0, 1.0 / 14.0, None)]
#[case::with_a_gpu_by_the_ratio(GPU, Some((3.0, 1.0, Some(6.0))), 3.0 / 20.0, 1.0 / 20.0, Some(6.0 / 20.0))]
#[case::with_a_gpu_that_has_no_rate(GPU, Some((3.0, 1.0, None)), 3.0 / 74.0, 1.0 / 74.0, Some(60.0 / 74.0))]
#[case::rates_of_nothing_have_no_ratio(SMALL, Some((0.0, 0.0, Some(6.0))), 1.0 / 3.0, 1.0 / 24.0, None)]
fn the_price_of_a_whole_node_is_split(
    #[case] capacity: &[(&str, &str)],
    #[case] of_list: Option<(f64, f64, Option<f64>)>,
    #[case] cpu: f64,
    #[case] memory: f64,
    #[case] gpu: Option<f64>,
) {
    let units = split(capacity, of_list.map(|(cpu, memory, gpu)| rates(cpu, memory, gpu)));
    assert!(close(units.cpu.per_hour(), cpu), "{units:?}");
    assert!(close(units.memory.per_hour(), memory), "{units:?}");
    match (units.gpus.get("nvidia.com/gpu"), gpu) {
        (Some(found), Some(expected)) => assert!(close(found.per_hour(), expected), "{units:?}"),
        (found, expected) => assert_eq!(found.is_some(), expected.is_some(), "{units:?}"),
    }
}

fn requests(amounts: &[(&str, &str)]) -> Requests {
    amounts.iter().map(|(resource, text)| ((*resource).to_owned(), text.parse().unwrap())).collect()
}

#[rstest]
#[case::nothing(&[], 0.0)]
#[case::a_share_of_each(&[("cpu", "500m"), ("memory", "512Mi")], 0.02 + 0.0025)]
#[case::a_gpu(&[("nvidia.com/gpu", "2")], 2.0)]
#[case::what_has_no_price_costs_nothing(&[("ephemeral-storage", "1Ti"), ("amd.com/gpu", "1"), ("example.com/nic", "1")], 0.0)]
fn a_pod_costs_what_it_asks_for(#[case] amounts: &[(&str, &str)], #[case] expected: f64) {
    let units = evaluated(None, "", GPU, &list()).0.unwrap().units.unwrap();
    assert!(close(units.per_hour(&requests(amounts)), expected));
}

#[test]
fn a_pod_that_asks_for_nothing_costs_0_without_a_sign() {
    assert!(UnitPrices::default().per_hour(&Requests::new()).is_sign_positive());
}

proptest! {
    #[test]
    fn no_annotation_panics(text in any::<String>(), near in "[-+]?[0-9]{0,30}[.,e]?[0-9]{0,30} ?") {
        for text in [text, near] {
            let _ = text.parse::<Price>();
            let _ = evaluated(Some(&text), "", SMALL, &list());
        }
    }

    #[test]
    fn a_price_is_read_as_it_is_printed(per_hour in 0.0..=Price::LARGEST) {
        prop_assert_eq!(price(per_hour).to_string().parse(), Ok(price(per_hour)));
    }

    #[test]
    fn the_parts_of_a_price_add_up_to_it(
        cents in 0..1_000_000_u32, cores in 1..512_i64, mebibytes in 1..4_000_000_i64, gpus in 0..16_i64,
    ) {
        let capacity = [("cpu", cores.to_string()), ("memory", format!("{mebibytes}Mi")), ("nvidia.com/gpu", gpus.to_string())];
        let capacity: Vec<_> = capacity.iter().map(|(resource, text)| (*resource, text.as_str())).collect();
        let text = format!("{}.{:02}", cents / 100, cents % 100);
        let found = evaluated(Some(&text), "", &capacity, &PriceList::default()).0.unwrap();
        let units = found.units.unwrap();
        let whole = BTreeMap::from([
            ("cpu".to_owned(), Quantity::from_units(cores)),
            ("memory".to_owned(), format!("{mebibytes}Mi").parse().unwrap()),
            ("nvidia.com/gpu".to_owned(), Quantity::from_units(gpus)),
        ]);
        prop_assert!(close(units.per_hour(&whole), f64::from(cents) / 100.0));
    }
}
