"""Distances, routes and places from Bing Maps."""

from typing import Any
from urllib.parse import quote

from lagent.actions.base_action import AsyncActionMixin, BaseAction, tool_api
from lagent.actions.parser import BaseParser, JsonParser
from lagent.actions.web.answers import objects, pick, words
from lagent.actions.web.errors import BadReply
from lagent.actions.web.tool import required_key, service_client, web_api
from lagent.portal import blocking

_TIMEOUT = 10.0  # seconds for one request
_MAX_STEPS, _MAX_PLACES = 200, 5


class _BINGMap(BaseAction):
    idempotent = True
    network = True
    base_url = 'https://dev.virtualearth.net/REST/v1'

    def __init__(
        self,
        key: str | None = None,
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = JsonParser,
    ) -> None:
        super().__init__(description, parser)
        self.key = required_key(key, 'BING_MAP_KEY', name='key')

    async def _resources(self, path: str, **params: Any) -> list[dict[str, Any]]:
        url = f'{self.base_url.rstrip("/")}/{quote(path)}'
        reply = await service_client(_TIMEOUT).get(url, params | {'o': 'json', 'key': self.key})
        return objects(reply.json(), 'resourceSets', 0, 'resources')

    async def _route(self, start: str, end: str) -> dict[str, Any]:
        found = await self._resources('Routes/Driving', **{'wp.0': start, 'wp.1': end})
        if not found:
            raise BadReply(f'Bing Maps knows no route from {start!r:.80} to {end!r:.80}.')
        return found[0]

    async def _coordinates(self, location: str) -> tuple[float, float]:
        found = await self._resources('Locations', query=location)
        match pick(found, 0, 'point', 'coordinates'):
            case [int() | float() as latitude, int() | float() as longitude, *_]:
                return latitude, longitude
        raise BadReply(f'Bing Maps knows no place {location!r:.80}.')


class AsyncBINGMap(AsyncActionMixin, _BINGMap):
    """Look up distances, routes and places on a map.

    Note:
        The awaited form of `BINGMap`, with the same arguments.
    """

    @tool_api(explode_return=True)
    @web_api
    async def get_distance(self, start: str, end: str) -> dict[str, Any]:
        """Get the distance between two locations in km, by car.

        Args:
            start (:class:`str`): The start location
            end (:class:`str`): The end location

        Returns:
            :class:`dict`: distance information
                * distance (str): the distance in km.
        """
        route = await self._route(start, end)
        if not isinstance(route.get('travelDistance'), int | float):
            raise BadReply('Bing Maps gave a route without its length.')
        return {'distance': route['travelDistance']}

    @tool_api(explode_return=True)
    @web_api
    async def get_route(self, start: str, end: str) -> dict[str, Any]:
        """Get the route between two locations, by car.

        Args:
            start (:class:`str`): The start location
            end (:class:`str`): The end location

        Returns:
            :class:`dict`: route information
                * route (list): the route, a list of actions.
        """
        legs = objects(await self._route(start, end), 'routeLegs')
        steps = [
            words(pick(item, 'instruction', 'text'))
            for leg in legs
            for item in objects(leg, 'itineraryItems')
        ]
        return {'route': [*filter(None, steps)][:_MAX_STEPS]}

    @tool_api(explode_return=True)
    @web_api
    async def get_coordinates(self, location: str) -> dict[str, Any]:
        """Get the coordinates of a location.

        Args:
            location (:class:`str`): the location need to get coordinates.

        Returns:
            :class:`dict`: coordinates information
                * latitude (float): the latitude of the location.
                * longitude (float): the longitude of the location.
        """
        latitude, longitude = await self._coordinates(location)
        return {'latitude': latitude, 'longitude': longitude}

    @tool_api(explode_return=True)
    @web_api
    async def search_nearby(
        self,
        search_term: str,
        places: str = 'unknown',
        latitude: float = 0.0,
        longitude: float = 0.0,
        radius: int = 5000,
    ) -> dict[str, Any]:
        """Search for places within a radius around a location: its name, or its coordinates.

        Args:
            search_term (:class:`str`): what to look for.
            places (:class:`str`): the name of the location; ``'unknown'`` to use the coordinates.
            latitude (:class:`float`): the latitude of the location.
            longitude (:class:`float`): the longitude of the location.
            radius (:class:`int`): radius in meters.

        Returns:
            :class:`dict`: places information
                * place (list): at most 5 places, each a dict with name and address.
        """
        if places != 'unknown':
            latitude, longitude = await self._coordinates(places)
        around = f'{latitude},{longitude}'
        found = await self._resources(
            'LocalSearch', query=search_term, userCircularMapView=f'{around},{radius}'
        )
        named = [{'name': words(one.get('name')), 'address': words(_address(one))} for one in found]
        return {'place': named[:_MAX_PLACES]}


class BINGMap(_BINGMap):
    """Look up distances, routes and places on a map.

    Note:
        Microsoft serves Bing Maps to enterprise accounts only, and until June 2028.

    Args:
        key: the key; without one, ``$BING_MAP_KEY``.
        description: replaces what models are told.
        parser: class that reads the inputs.

    Raises:
        ValueError: there is no key.
    """

    get_distance = blocking(AsyncBINGMap.get_distance)
    get_route = blocking(AsyncBINGMap.get_route)
    get_coordinates = blocking(AsyncBINGMap.get_coordinates)
    search_nearby = blocking(AsyncBINGMap.search_nearby)


def _address(place: dict[str, Any]) -> Any:
    return pick(place, 'Address', 'formattedAddress') or pick(place, 'address', 'formattedAddress')
