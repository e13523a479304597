//! Finding sandboxes.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, with};

fn teams(answer: &Answer) -> Vec<String> {
    let items = answer.json()["items"].as_array().expect("items").clone();
    let team = |item: &Value| item["metadata"]["team"].as_str().expect("a team").to_owned();
    items.iter().map(team).collect()
}

/// Five sandboxes, a second apart: `t0` to `t4`, the odd ones paused.
async fn five() -> TestServer {
    let server = TestServer::start().await;
    for n in 0..5 {
        let parity = if n % 2 == 0 { "even" } else { "odd" };
        let metadata = json!({"team": format!("t{n}"), "x.io/parity": parity});
        let id = server.create_from(with(json!({"metadata": metadata}))).await;
        if parity == "odd" {
            assert_eq!(server.post(&format!("/v1/sandboxes/{id}/pause"), None).await.status, 202);
        }
        server.world.clock.advance(Duration::from_secs(1));
    }
    server
}

#[tokio::test]
async fn the_newest_come_first_and_pages_divide_them() {
    let server = five().await;
    let all = server.get("/v1/sandboxes").await;
    assert_eq!(all.status, 200);
    assert_eq!(teams(&all), ["t4", "t3", "t2", "t1", "t0"]);
    assert_eq!(
        all.json()["pagination"],
        json!({"page": 1, "pageSize": 20, "totalItems": 5, "totalPages": 1, "hasNextPage": false})
    );
    let second = server.get("/v1/sandboxes?page=2&pageSize=2").await;
    assert_eq!(teams(&second), ["t2", "t1"]);
    assert_eq!(
        second.json()["pagination"],
        json!({"page": 2, "pageSize": 2, "totalItems": 5, "totalPages": 3, "hasNextPage": true})
    );
    let beyond = server.get("/v1/sandboxes?page=18446744073709551615&pageSize=200").await;
    assert_eq!((beyond.status, teams(&beyond)), (200, vec![]));
    assert_eq!(beyond.json()["pagination"]["hasNextPage"], false);
}

#[tokio::test]
async fn states_are_alternatives_and_labels_are_all_required() {
    let server = five().await;
    for (query, expected) in [
        ("state=paused", &["t3", "t1"][..]),
        ("state=PAUSED&state=Running", &["t4", "t3", "t2", "t1", "t0"]),
        ("state=Failed", &[]),
        ("metadata=team%3Dt3", &["t3"]),
        ("metadata=team=t3", &["t3"]),
        ("metadata=x.io%2Fparity%3Dodd%26team%3Dt1", &["t1"]),
        ("metadata=x.io%252Fparity%253Dodd", &[]),
        ("metadata=x.io%252Fparity%3Dodd", &["t3", "t1"]),
        ("metadata=team%3Dt0%26team%3Dt2", &["t2"]),
        ("metadata=team%3D", &[]),
        ("metadata=", &["t4", "t3", "t2", "t1", "t0"]),
        ("state=running&metadata=x.io%2Fparity%3Deven&pageSize=1", &["t4"]),
        ("unknown=parameter&state=paused", &["t3", "t1"]),
    ] {
        let answer = server.get(&format!("/v1/sandboxes?{query}")).await;
        let refused = query.contains("%253D");
        if refused {
            answer.refusal(400, "INVALID_METADATA_FORMAT");
        } else {
            assert_eq!(teams(&answer), expected, "{query}");
        }
    }
}

#[tokio::test]
async fn bad_queries_are_refused() {
    let server = TestServer::start().await;
    for query in ["page=0", "page=-1", "page=x", "page=", "pageSize=0", "pageSize=201"] {
        let answer = server.get(&format!("/v1/sandboxes?{query}")).await;
        answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
    }
    let answer = server.get("/v1/sandboxes?metadata=team").await;
    answer.refusal(400, "INVALID_METADATA_FORMAT");
}
