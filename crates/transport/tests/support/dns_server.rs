//! A DNS server on a loopback port that answers as a test says.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

/// The handling of a question.
pub(crate) enum Reply {
    /// Records with their times to live.
    Records(Vec<(Name, u32, RData)>),
    Code(ResponseCode),
    Silence,
}

pub(crate) struct DnsServer {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, RecordType)>>>,
    task: AbortHandle,
}

impl DnsServer {
    pub(crate) async fn start(answer: impl Fn(&Name, RecordType) -> Reply + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            let mut buffer = [0; 4096];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                let request = Message::from_vec(&buffer[..length]).unwrap();
                let question = request.queries[0].clone();
                log.lock().unwrap().push((question.name().to_string(), question.query_type()));
                let mut response = Message::response(request.metadata.id, OpCode::Query);
                match answer(question.name(), question.query_type()) {
                    Reply::Records(records) => {
                        let records = records.into_iter();
                        response.add_answers(
                            records.map(|(name, ttl, data)| Record::from_rdata(name, ttl, data)),
                        );
                    }
                    Reply::Code(code) => response.metadata.response_code = code,
                    Reply::Silence => continue,
                }
                response.add_query(question);
                socket.send_to(&response.to_vec().unwrap(), from).await.unwrap();
            }
        });
        Self { address, asked, task: task.abort_handle() }
    }

    /// All questions so far, sorted.
    pub(crate) fn asked(&self) -> Vec<(String, RecordType)> {
        let mut asked = self.asked.lock().unwrap().clone();
        asked.sort();
        asked
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
