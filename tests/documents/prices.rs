//! Checks the example's price file, and the one in its document.

use std::fs;

use app::prices::PriceFile;
use rules::price::{Price, Rates, Tariff};

use super::{read, root};

#[test]
fn the_price_file_and_the_one_in_its_document_are_read() {
    let (_, prices) = PriceFile::open(&root().join("examples/prices.yaml")).unwrap();
    let price = |number: f64| Price::try_from(number).unwrap();
    assert_eq!(prices.instance_types.get("g5.xlarge"), Some(&price(1.006)));
    assert_eq!(prices.resources.map(|rates| rates.memory), Some(price(0.00375)));
    let [spot, arm] = prices.selectors.as_slice() else { panic!("{prices:?}") };
    assert_eq!(spot.tariff, Tariff::Whole(price(0.074)));
    assert_eq!(arm.tariff, Tariff::Resources(Rates { cpu: price(0.0272), memory: price(0.003), gpu: None }));

    let document = read("docs/how-to/prices.md");
    let (_, rest) = document.split_once("```yaml\n").unwrap();
    let (form, _) = rest.split_once("```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prices.yaml");
    fs::write(&file, form).unwrap();
    let (_, documented) = PriceFile::open(&file).unwrap();
    assert_eq!(documented.selectors, prices.selectors);
    assert!(documented.instance_types.iter().all(|known| prices.instance_types.get(known.0) == Some(known.1)));
}
