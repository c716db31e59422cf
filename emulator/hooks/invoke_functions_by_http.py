"""Runs inside LocalStack at start: a function is invoked by a POST of its event, not in a container.

LocalStack runs functions in Docker. Here the variable SLUICE_FUNCTION_URL of a function names who plays it: status 200
answers, any other is an error, and no answer within the function's timeout is one, too. Mappings, polling, concurrency
and deletes stay LocalStack's. This modifies the emulator, and the contract run reports it as modified.
"""

import http.client
from urllib.parse import urlsplit

from localstack.services.lambda_.invocation import plugins
from localstack.services.lambda_.invocation.lambda_models import InvocationResult
from localstack.services.lambda_.invocation.runtime_executor import RuntimeExecutor


class _HttpExecutor(RuntimeExecutor):
    def start(self, env_vars):
        self._url = urlsplit(env_vars["SLUICE_FUNCTION_URL"])

    def stop(self):
        pass

    def get_address(self):
        return self._url.hostname

    def get_endpoint_from_executor(self):
        return "127.0.0.1"

    def get_runtime_endpoint(self):
        return ""

    def get_logs(self):
        return ""

    def invoke(self, payload):
        request_id, seconds = payload["invoke-id"], self.function_version.config.timeout
        connection = http.client.HTTPConnection(self._url.netloc, timeout=seconds)
        try:
            connection.request("POST", self._url.path, payload["payload"].encode())
            answer = connection.getresponse()
            body, is_error = answer.read(), answer.status != 200
        except OSError as error:
            body, is_error = b'{"errorMessage": "%s"}' % type(error).__name__.encode(), True
        finally:
            connection.close()
        return InvocationResult(request_id, body, is_error=is_error, logs="")

    @classmethod
    def prepare_version(cls, function_version):
        pass

    @classmethod
    def cleanup_version(cls, function_version):
        pass


plugins.DockerRuntimeExecutorPlugin.load = lambda *_, **__: _HttpExecutor
