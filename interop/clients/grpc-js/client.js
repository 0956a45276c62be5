// An xDS client on grpc-js for the suite of the folder above: calls grpc.testing.TestService/EmptyCall at a steady rate, prints a
// JSON object per RPC ({"peer": ...} or {"status": ...}) and serves CSDS on a port of the loopback interface.
'use strict';
const grpc = require('@grpc/grpc-js');
const xds = require('@grpc/grpc-js-xds');

xds.register();
const flags = Object.fromEntries(process.argv.slice(2).map((arg) => arg.slice(2).split(/=(.*)/s).slice(0, 2)));

const server = new grpc.Server();
grpc.addAdminServicesToServer(server);
server.bindAsync(`127.0.0.1:${flags.stats_port}`, grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
});

const credentials = new xds.XdsChannelCredentials(grpc.credentials.createInsecure());
const client = new grpc.Client(flags.server, credentials);
const nothing = () => Buffer.alloc(0);

setInterval(() => {
  let peer = '';
  const options = { deadline: Date.now() + 20000 };
  const call = client.makeUnaryRequest(
    '/grpc.testing.TestService/EmptyCall', nothing, nothing, {}, new grpc.Metadata(), options, (error) => {
      console.log(JSON.stringify(error ? { status: grpc.status[error.code], message: error.details } : { peer }));
    });
  call.on('metadata', (metadata) => {
    peer = metadata.get('hostname')[0];
  });
}, 1000 / Number(flags.qps || 50));
