// A service in JavaScript that knows nothing of Sluice: it publishes six orders, and receives and deletes them.
// Its endpoints are those of AWS_ENDPOINT_URL_SQS and AWS_ENDPOINT_URL_SNS; arguments: name of the queue, topic's ARN.
import { PublishBatchCommand, PublishCommand, SNSClient } from "@aws-sdk/client-sns";
import {
  ChangeMessageVisibilityCommand,
  DeleteMessageBatchCommand,
  DeleteMessageCommand,
  GetQueueUrlCommand,
  ReceiveMessageCommand,
  SendMessageCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";

const [, , QueueName, TopicArn] = process.argv;
const sqs = new SQSClient({});
const sns = new SNSClient({});
const { QueueUrl } = await sqs.send(new GetQueueUrlCommand({ QueueName }));

const entry = (number) => ({
  Id: `e${number}`,
  Message: `order ${number} ä&=+%`,
  MessageGroupId: `g${number}`,
  MessageDeduplicationId: `d${number}`,
});
await sns.send(
  new PublishCommand({
    TopicArn,
    Message: "order 0",
    MessageGroupId: "g0",
    MessageDeduplicationId: "d0",
    MessageAttributes: { raw: { DataType: "Binary", BinaryValue: new Uint8Array([255, 0]) } },
  }),
);
await sns.send(new PublishBatchCommand({ TopicArn, PublishBatchRequestEntries: [1, 2, 3, 4].map(entry) }));
await sqs.send(
  new SendMessageCommand({ QueueUrl, MessageBody: "direct", MessageGroupId: "g5", MessageDeduplicationId: "d5" }),
);

const handles = [];
while (handles.length < 6) {
  const { Messages = [] } = await sqs.send(
    new ReceiveMessageCommand({
      QueueUrl,
      MaxNumberOfMessages: 10,
      WaitTimeSeconds: 5,
      MessageSystemAttributeNames: ["All"],
      MessageAttributeNames: ["All"],
    }),
  );
  handles.push(...Messages.map((message) => message.ReceiptHandle));
}
const [first, ...others] = handles;
await sqs.send(new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle: first, VisibilityTimeout: 60 }));
await sqs.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: first }));
const Entries = others.map((ReceiptHandle, number) => ({ Id: `${number}`, ReceiptHandle }));
await sqs.send(new DeleteMessageBatchCommand({ QueueUrl, Entries }));
console.log(new URL(QueueUrl).host);
