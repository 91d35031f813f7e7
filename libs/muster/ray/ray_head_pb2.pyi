from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LabelSelectorOperator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LABEL_OPERATOR_UNSPECIFIED: _ClassVar[LabelSelectorOperator]
    LABEL_OPERATOR_IN: _ClassVar[LabelSelectorOperator]
    LABEL_OPERATOR_NOT_IN: _ClassVar[LabelSelectorOperator]

class NodeStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED: _ClassVar[NodeStatus]
    RUNNING: _ClassVar[NodeStatus]
    DEAD: _ClassVar[NodeStatus]
    IDLE: _ClassVar[NodeStatus]
    DRAINING: _ClassVar[NodeStatus]

class DrainNodeReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DRAIN_NODE_REASON_UNSPECIFIED: _ClassVar[DrainNodeReason]
    DRAIN_NODE_REASON_IDLE_TERMINATION: _ClassVar[DrainNodeReason]
    DRAIN_NODE_REASON_PREEMPTION: _ClassVar[DrainNodeReason]

class ActorState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEPENDENCIES_UNREADY: _ClassVar[ActorState]
    PENDING_CREATION: _ClassVar[ActorState]
    ALIVE: _ClassVar[ActorState]
    RESTARTING: _ClassVar[ActorState]
    ACTOR_DEAD: _ClassVar[ActorState]
LABEL_OPERATOR_UNSPECIFIED: LabelSelectorOperator
LABEL_OPERATOR_IN: LabelSelectorOperator
LABEL_OPERATOR_NOT_IN: LabelSelectorOperator
UNSPECIFIED: NodeStatus
RUNNING: NodeStatus
DEAD: NodeStatus
IDLE: NodeStatus
DRAINING: NodeStatus
DRAIN_NODE_REASON_UNSPECIFIED: DrainNodeReason
DRAIN_NODE_REASON_IDLE_TERMINATION: DrainNodeReason
DRAIN_NODE_REASON_PREEMPTION: DrainNodeReason
DEPENDENCIES_UNREADY: ActorState
PENDING_CREATION: ActorState
ALIVE: ActorState
RESTARTING: ActorState
ACTOR_DEAD: ActorState

class GetClusterStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetClusterStatusReply(_message.Message):
    __slots__ = ("autoscaling_state", "cluster_resource_state")
    AUTOSCALING_STATE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_RESOURCE_STATE_FIELD_NUMBER: _ClassVar[int]
    autoscaling_state: AutoscalingState
    cluster_resource_state: ClusterResourceState
    def __init__(self, autoscaling_state: _Optional[_Union[AutoscalingState, _Mapping]] = ..., cluster_resource_state: _Optional[_Union[ClusterResourceState, _Mapping]] = ...) -> None: ...

class ClusterResourceState(_message.Message):
    __slots__ = ("cluster_resource_state_version", "node_states", "pending_resource_requests", "pending_gang_resource_requests", "cluster_resource_constraints", "cluster_session_name")
    CLUSTER_RESOURCE_STATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_STATES_FIELD_NUMBER: _ClassVar[int]
    PENDING_RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PENDING_GANG_RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_RESOURCE_CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_SESSION_NAME_FIELD_NUMBER: _ClassVar[int]
    cluster_resource_state_version: int
    node_states: _containers.RepeatedCompositeFieldContainer[NodeState]
    pending_resource_requests: _containers.RepeatedCompositeFieldContainer[ResourceRequestByCount]
    pending_gang_resource_requests: _containers.RepeatedCompositeFieldContainer[GangResourceRequest]
    cluster_resource_constraints: _containers.RepeatedCompositeFieldContainer[ClusterResourceConstraint]
    cluster_session_name: str
    def __init__(self, cluster_resource_state_version: _Optional[int] = ..., node_states: _Optional[_Iterable[_Union[NodeState, _Mapping]]] = ..., pending_resource_requests: _Optional[_Iterable[_Union[ResourceRequestByCount, _Mapping]]] = ..., pending_gang_resource_requests: _Optional[_Iterable[_Union[GangResourceRequest, _Mapping]]] = ..., cluster_resource_constraints: _Optional[_Iterable[_Union[ClusterResourceConstraint, _Mapping]]] = ..., cluster_session_name: _Optional[str] = ...) -> None: ...

class ResourceRequestByCount(_message.Message):
    __slots__ = ("request", "count")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    request: ResourceRequest
    count: int
    def __init__(self, request: _Optional[_Union[ResourceRequest, _Mapping]] = ..., count: _Optional[int] = ...) -> None: ...

class ResourceRequest(_message.Message):
    __slots__ = ("resources_bundle", "label_selectors")
    class ResourcesBundleEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RESOURCES_BUNDLE_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTORS_FIELD_NUMBER: _ClassVar[int]
    resources_bundle: _containers.ScalarMap[str, float]
    label_selectors: _containers.RepeatedCompositeFieldContainer[LabelSelector]
    def __init__(self, resources_bundle: _Optional[_Mapping[str, float]] = ..., label_selectors: _Optional[_Iterable[_Union[LabelSelector, _Mapping]]] = ...) -> None: ...

class LabelSelector(_message.Message):
    __slots__ = ("label_constraints",)
    LABEL_CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    label_constraints: _containers.RepeatedCompositeFieldContainer[LabelSelectorConstraint]
    def __init__(self, label_constraints: _Optional[_Iterable[_Union[LabelSelectorConstraint, _Mapping]]] = ...) -> None: ...

class LabelSelectorConstraint(_message.Message):
    __slots__ = ("label_key", "operator", "label_values")
    LABEL_KEY_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    LABEL_VALUES_FIELD_NUMBER: _ClassVar[int]
    label_key: str
    operator: LabelSelectorOperator
    label_values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, label_key: _Optional[str] = ..., operator: _Optional[_Union[LabelSelectorOperator, str]] = ..., label_values: _Optional[_Iterable[str]] = ...) -> None: ...

class GangResourceRequest(_message.Message):
    __slots__ = ("requests", "details", "bundle_selectors")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_SELECTORS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[ResourceRequest]
    details: str
    bundle_selectors: _containers.RepeatedCompositeFieldContainer[BundleSelector]
    def __init__(self, requests: _Optional[_Iterable[_Union[ResourceRequest, _Mapping]]] = ..., details: _Optional[str] = ..., bundle_selectors: _Optional[_Iterable[_Union[BundleSelector, _Mapping]]] = ...) -> None: ...

class BundleSelector(_message.Message):
    __slots__ = ("resource_requests",)
    RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    resource_requests: _containers.RepeatedCompositeFieldContainer[ResourceRequest]
    def __init__(self, resource_requests: _Optional[_Iterable[_Union[ResourceRequest, _Mapping]]] = ...) -> None: ...

class ClusterResourceConstraint(_message.Message):
    __slots__ = ("resource_requests",)
    RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    resource_requests: _containers.RepeatedCompositeFieldContainer[ResourceRequestByCount]
    def __init__(self, resource_requests: _Optional[_Iterable[_Union[ResourceRequestByCount, _Mapping]]] = ...) -> None: ...

class NodeState(_message.Message):
    __slots__ = ("node_id", "instance_id", "ray_node_type_name", "available_resources", "total_resources", "status", "idle_duration_ms", "node_activity")
    class AvailableResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class TotalResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RAY_NODE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    IDLE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    NODE_ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    instance_id: str
    ray_node_type_name: str
    available_resources: _containers.ScalarMap[str, float]
    total_resources: _containers.ScalarMap[str, float]
    status: NodeStatus
    idle_duration_ms: int
    node_activity: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node_id: _Optional[bytes] = ..., instance_id: _Optional[str] = ..., ray_node_type_name: _Optional[str] = ..., available_resources: _Optional[_Mapping[str, float]] = ..., total_resources: _Optional[_Mapping[str, float]] = ..., status: _Optional[_Union[NodeStatus, str]] = ..., idle_duration_ms: _Optional[int] = ..., node_activity: _Optional[_Iterable[str]] = ...) -> None: ...

class AutoscalingState(_message.Message):
    __slots__ = ("last_seen_cluster_resource_state_version", "autoscaler_state_version", "pending_instance_requests", "infeasible_resource_requests", "pending_instances", "failed_instance_requests")
    LAST_SEEN_CLUSTER_RESOURCE_STATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    AUTOSCALER_STATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PENDING_INSTANCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    INFEASIBLE_RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PENDING_INSTANCES_FIELD_NUMBER: _ClassVar[int]
    FAILED_INSTANCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    last_seen_cluster_resource_state_version: int
    autoscaler_state_version: int
    pending_instance_requests: _containers.RepeatedCompositeFieldContainer[PendingInstanceRequest]
    infeasible_resource_requests: _containers.RepeatedCompositeFieldContainer[ResourceRequest]
    pending_instances: _containers.RepeatedCompositeFieldContainer[PendingInstance]
    failed_instance_requests: _containers.RepeatedCompositeFieldContainer[FailedInstanceRequest]
    def __init__(self, last_seen_cluster_resource_state_version: _Optional[int] = ..., autoscaler_state_version: _Optional[int] = ..., pending_instance_requests: _Optional[_Iterable[_Union[PendingInstanceRequest, _Mapping]]] = ..., infeasible_resource_requests: _Optional[_Iterable[_Union[ResourceRequest, _Mapping]]] = ..., pending_instances: _Optional[_Iterable[_Union[PendingInstance, _Mapping]]] = ..., failed_instance_requests: _Optional[_Iterable[_Union[FailedInstanceRequest, _Mapping]]] = ...) -> None: ...

class PendingInstanceRequest(_message.Message):
    __slots__ = ("ray_node_type_name", "count")
    RAY_NODE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ray_node_type_name: str
    count: int
    def __init__(self, ray_node_type_name: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class PendingInstance(_message.Message):
    __slots__ = ("ray_node_type_name", "instance_id")
    RAY_NODE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ray_node_type_name: str
    instance_id: str
    def __init__(self, ray_node_type_name: _Optional[str] = ..., instance_id: _Optional[str] = ...) -> None: ...

class FailedInstanceRequest(_message.Message):
    __slots__ = ("ray_node_type_name", "count", "reason")
    RAY_NODE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ray_node_type_name: str
    count: int
    reason: str
    def __init__(self, ray_node_type_name: _Optional[str] = ..., count: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class DrainNodeRequest(_message.Message):
    __slots__ = ("node_id", "reason", "reason_message", "deadline_timestamp_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REASON_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    reason: DrainNodeReason
    reason_message: str
    deadline_timestamp_ms: int
    def __init__(self, node_id: _Optional[bytes] = ..., reason: _Optional[_Union[DrainNodeReason, str]] = ..., reason_message: _Optional[str] = ..., deadline_timestamp_ms: _Optional[int] = ...) -> None: ...

class DrainNodeReply(_message.Message):
    __slots__ = ("is_accepted", "rejection_reason_message")
    IS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REJECTION_REASON_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    is_accepted: bool
    rejection_reason_message: str
    def __init__(self, is_accepted: _Optional[bool] = ..., rejection_reason_message: _Optional[str] = ...) -> None: ...

class InternalKVGetRequest(_message.Message):
    __slots__ = ("key", "namespace")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    namespace: bytes
    def __init__(self, key: _Optional[bytes] = ..., namespace: _Optional[bytes] = ...) -> None: ...

class GcsStatus(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class InternalKVGetReply(_message.Message):
    __slots__ = ("status", "value")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    status: GcsStatus
    value: bytes
    def __init__(self, status: _Optional[_Union[GcsStatus, _Mapping]] = ..., value: _Optional[bytes] = ...) -> None: ...

class GetAllActorInfoRequest(_message.Message):
    __slots__ = ("show_dead_jobs", "limit", "filters")
    class Filters(_message.Message):
        __slots__ = ("state",)
        STATE_FIELD_NUMBER: _ClassVar[int]
        state: ActorState
        def __init__(self, state: _Optional[_Union[ActorState, str]] = ...) -> None: ...
    SHOW_DEAD_JOBS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    show_dead_jobs: bool
    limit: int
    filters: GetAllActorInfoRequest.Filters
    def __init__(self, show_dead_jobs: _Optional[bool] = ..., limit: _Optional[int] = ..., filters: _Optional[_Union[GetAllActorInfoRequest.Filters, _Mapping]] = ...) -> None: ...

class ActorTableData(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    def __init__(self, node_id: _Optional[bytes] = ...) -> None: ...

class GetAllActorInfoReply(_message.Message):
    __slots__ = ("status", "actor_table_data")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_TABLE_DATA_FIELD_NUMBER: _ClassVar[int]
    status: GcsStatus
    actor_table_data: _containers.RepeatedCompositeFieldContainer[ActorTableData]
    def __init__(self, status: _Optional[_Union[GcsStatus, _Mapping]] = ..., actor_table_data: _Optional[_Iterable[_Union[ActorTableData, _Mapping]]] = ...) -> None: ...
